//! `gpuaas terminal` on a real terminal, against a server that the test plays.

mod gateway;
mod window;

use std::{process::Stdio, time::Duration};

use gateway::{ALLOCATION, Gateway, SESSION};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, time::timeout};
use tokio_tungstenite::tungstenite::Message;
use window::{Window, person};

use crate::kit::send_signal;

const TIME_LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_shell_is_used_resized_and_ends_with_its_exit_status() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open(&gateway, &[]);
    let mint = gateway.minting().await;
    assert_eq!(mint.body, json!({ "access": "write" }));
    mint.accept().await;
    let mut shell = gateway.connected().await;
    let attach = shell.control("attach").await;
    assert_eq!(attach, json!({ "type": "attach", "sequence": 0, "columns": 100, "rows": 30 }));
    assert!(!window.is_raw(), "before there is a session, Ctrl-C interrupts");
    shell.ready(0, "write").await;
    shell.output(b"$ \xe2\x82\xac").await;
    window.shows("$ €").await;
    assert_eq!(shell.control("ack").await["sequence"], json!(5));
    assert!(window.is_raw());
    // Ctrl-C is a key, and an escape needs the beginning of a line.
    window.enter("a\x03 ~.\r~~~?").await;
    assert_eq!(shell.input(9).await, "a\x03 ~.\r~~?");
    window.enter("\r~?").await;
    assert_eq!(shell.input(1).await, "\r");
    window.shows("~.  detach").await;
    window.resize(132, 43);
    assert_eq!(shell.control("resize").await, json!({ "type": "resize", "columns": 132, "rows": 43 }));
    shell.output(b"bye\r\n").await;
    shell.session_closed("exited", Some(3)).await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 3, "{shown}");
    assert!(shown.ends_with("bye\r\nThe session ended: exit status 3.\r\n"), "{shown:?}");
}

#[tokio::test]
async fn connections_that_are_cut_cost_no_byte_and_show_none_twice() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open_with(&gateway, &[], Some(Stdio::piped()));
    let output: Vec<u8> = (0..200_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    let mut pipe = window.child.stdout.take().unwrap();
    let read = tokio::spawn(async move {
        let mut read = Vec::new();
        pipe.read_to_end(&mut read).await.unwrap();
        read
    });
    let (mut position, mut started) = (0, false);
    // Where the server cuts: within what is on its way, and right after it was acknowledged.
    for cut_at in [70_000, 330_000, 330_001, output.len()] {
        let mint = gateway.minting().await;
        let expected = if started {
            json!({ "access": "write", "session_id": SESSION })
        } else {
            json!({ "access": "write" })
        };
        assert_eq!(mint.body, expected);
        mint.accept().await;
        let mut shell = gateway.connected().await;
        let attach = shell.control("attach").await;
        let has = usize::try_from(attach["sequence"].as_u64().unwrap()).unwrap();
        assert!(has <= position, "{has} of {position}");
        position = has;
        shell.ready(has as u64, "write").await;
        let mut acknowledged = has;
        while position < cut_at {
            let most = (acknowledged + 262_144).min(cut_at).min(position + 32_768);
            if most > position {
                shell.output(&output[position..most]).await;
                position = most;
                continue;
            }
            acknowledged = usize::try_from(shell.control("ack").await["sequence"].as_u64().unwrap()).unwrap();
            assert!(acknowledged <= position);
        }
        started = true;
        if cut_at == output.len() {
            shell.session_closed("exited", Some(0)).await;
        } else {
            drop(shell);
        }
    }
    let (code, shown) = window.end().await;
    assert_eq!(code, 0, "{shown}");
    assert_eq!(shown.matches("[connection lost; reconnecting …]").count(), 3, "{shown}");
    assert_eq!(shown.matches("[connected again]").count(), 3, "{shown}");
    assert!(read.await.unwrap() == output, "byte for byte");
}

#[tokio::test]
async fn detaching_leaves_the_shell_alone_and_says_how_to_come_back() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open(&gateway, &["--session", SESSION, "--take-over"]);
    let mint = gateway.minting().await;
    assert_eq!(mint.body, json!({ "access": "take_over", "session_id": SESSION }));
    mint.accept().await;
    let mut shell = gateway.connected().await;
    shell.control("attach").await;
    shell.ready(7, "take_over").await;
    window.shows("[7 bytes of earlier output were not kept]").await;
    window.enter("ls\r~.").await;
    assert_eq!(shell.input(3).await, "ls\r");
    shell.control("detach").await;
    shell.closed().await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 0, "{shown}");
    let back =
        format!("Detached; come back with: gpuaas terminal {ALLOCATION} --session {SESSION} --project");
    assert!(shown.contains(&back), "{shown}");
}

#[tokio::test]
async fn without_a_connection_keys_are_dropped_and_the_escapes_work() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open(&gateway, &["--session", SESSION, "--take-over"]);
    let mut shell = gateway.attaching().await;
    shell.ready(0, "take_over").await;
    shell.output(b"$ ").await;
    window.shows("$ ").await;
    shell.close(1012).await;
    window.shows("[connection lost (the gateway restarts); reconnecting …]").await;
    window.enter("rm -rf x\r~?").await;
    window.shows("~.  detach").await;
    // Who takes over meanwhile keeps the session.
    let mint = gateway.minting().await;
    assert_eq!(mint.body, json!({ "access": "write", "session_id": SESSION }));
    mint.refuse(503, "service_unavailable").await;
    let mut shell = gateway.attaching().await;
    assert_eq!(shell.attach["sequence"], json!(2));
    shell.ready(2, "write").await;
    window.shows("[connected again]").await;
    window.enter("pwd\r").await;
    assert_eq!(shell.input(4).await, "pwd\r", "and nothing that was typed before");
    drop(shell);
    gateway.minting().await;
    window.enter("~.").await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Detached; come back with"), "{shown}");
}

#[tokio::test]
async fn a_retryable_error_is_retried_and_a_writer_that_seems_attached_may_be_this_window() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open(&gateway, &[]);
    let error = |code: &str, retryable: bool| json!({ "type": "session_error", "code": code, "message": "Not now.", "retryable": retryable });
    let mut shell = gateway.attaching().await;
    shell.send(error("node_unreachable", true)).await;
    shell.close(1011).await;
    window.shows("[connection lost (Not now.); reconnecting …]").await;
    let mut shell = gateway.attaching().await;
    shell.ready(0, "write").await;
    shell.output(b"$ ").await;
    window.shows("$ ").await;
    drop(shell);
    let mut shell = gateway.attaching().await;
    shell.send(error("writer_attached", false)).await;
    shell.close(1008).await;
    let mut shell = gateway.attaching().await;
    assert_eq!(shell.attach["sequence"], json!(2));
    shell.ready(2, "write").await;
    shell.output(b"again").await;
    window.shows("again").await;
    window.enter("exit\r").await;
    shell.input(5).await;
    shell.session_closed("exited", Some(0)).await;
    let (code, shown) = window.end().await;
    assert_eq!((code, shown.matches("reconnecting").count()), (0, 2), "{shown}");
}

#[tokio::test]
async fn signals_and_a_lost_terminal_end_it_and_the_shell_goes_on() {
    for (signal, expected) in [(Signal::SIGTERM, 1), (Signal::SIGHUP, 1), (Signal::SIGINT, 130)] {
        let mut gateway = Gateway::start().await;
        let window = Window::open(&gateway, &[]);
        let mut shell = gateway.attaching().await;
        shell.ready(0, "write").await;
        shell.output(b"$ ").await;
        window.shows("$ ").await;
        assert!(window.is_raw());
        send_signal(&window.child, signal);
        shell.control("detach").await;
        shell.closed().await;
        let (code, shown) = window.end().await;
        assert_eq!(code, expected, "{shown}");
        assert!(shown.contains("The session goes on; come back with: gpuaas terminal"), "{shown}");
    }
    let mut gateway = Gateway::start().await;
    let window = Window::open(&gateway, &[]);
    let mut shell = gateway.attaching().await;
    shell.ready(0, "write").await;
    shell.output(b"$ ").await;
    window.shows("$ ").await;
    let mut child = window.hang_up();
    shell.control("detach").await;
    shell.closed().await;
    let status = timeout(TIME_LIMIT, child.wait()).await.expect("it ends in time").unwrap();
    assert_eq!(status.code(), Some(1));
}

#[tokio::test]
async fn refusals_say_what_to_do_and_have_the_exit_code_of_their_kind() {
    let error = json!({
        "type": "session_error", "code": "writer_attached", "message": "Another window types.", "retryable": false
    });
    let mut gateway = Gateway::start().await;
    let window = Window::open(&gateway, &["--session", SESSION]);
    let mut shell = gateway.attaching().await;
    shell.send(error).await;
    shell.close(1008).await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 5, "{shown}");
    assert!(shown.contains("(writer_attached)"), "{shown}");
    assert!(shown.contains("--take-over") && shown.contains("--watch"), "{shown}");

    let window = Window::open(&gateway, &[]);
    gateway.attaching().await.close(4401).await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains("did not accept the token"), "{shown}");

    let window = Window::open(&gateway, &[]);
    let mut shell = gateway.attaching().await;
    shell.ready(0, "write").await;
    shell.output(b"$ ").await;
    window.shows("$ ").await;
    shell.session_closed("taken_over", None).await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("another window took over the session"), "{shown}");

    for (status, code, expected) in
        [(409, "conflict", 5), (404, "not_found", 4), (403, "insufficient_permissions", 3)]
    {
        let window = Window::open(&gateway, &[]);
        gateway.minting().await.refuse(status, code).await;
        let (exit, shown) = window.end().await;
        assert_eq!(exit, expected, "{shown}");
        assert!(shown.contains(&format!("error: No. ({code})")), "{shown}");
    }
}

#[tokio::test]
async fn a_watcher_sees_and_does_not_type() {
    let mut gateway = Gateway::start().await;
    let mut window = Window::open(&gateway, &["--session", SESSION, "--watch", "--escape-key", "%"]);
    let mint = gateway.minting().await;
    assert_eq!(mint.body, json!({ "access": "watch", "session_id": SESSION }));
    mint.accept().await;
    let mut shell = gateway.connected().await;
    shell.control("attach").await;
    shell.ready(0, "watch").await;
    shell.output(b"$ ").await;
    window.shows("[watching: what you type is not sent]").await;
    window.shows("$ ").await;
    window.enter("ls\r~.\r%.").await;
    loop {
        match shell.message().await {
            Message::Text(text) if text.contains("ack") => {}
            Message::Text(text) if text.contains("detach") => break,
            other => panic!("{other:?}"),
        }
    }
    shell.closed().await;
    let (code, shown) = window.end().await;
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("--watch"), "{shown}");
}

#[tokio::test]
async fn a_pipe_is_not_a_terminal_and_nothing_is_asked_for() {
    let gateway = Gateway::start().await;
    let run = person(&gateway);
    let ran = timeout(TIME_LIMIT, run.run(&["terminal", ALLOCATION])).await.unwrap();
    let said = ran.fails(1);
    assert!(said.contains("standard input is not a terminal"), "{said}");
}

#[tokio::test]
async fn the_address_of_the_terminal_in_the_browser_is_printed_and_needs_no_terminal() {
    let gateway = Gateway::start().await;
    let run = person(&gateway);
    let page = format!("{}/terminal/{}/{ALLOCATION}", gateway.base, gateway::PROJECT);
    for (more, address) in [(&[][..], page.clone()), (&["--session", SESSION], format!("{page}#{SESSION}"))] {
        let arguments = [&["terminal", ALLOCATION, "--web"], more].concat();
        let ran = timeout(TIME_LIMIT, run.run(&arguments)).await.unwrap();
        assert_eq!(ran.ok(), format!("{address}\n"));
    }
}
