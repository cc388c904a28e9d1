//! What is typed reaches the program, and blocks nothing when the program does not read it.

use bytes::{BufMut as _, Bytes, BytesMut};
use node_proto::grant::PtyAccess;
use node_terminal::{INPUT_FRAME, Limits};
use node_tunnel::frame::{Decoder, Frame, LONGEST};
use tokio::sync::watch;

use super::{
    client::Client,
    kit::{A_WHILE, Node, SOON, wait_for},
};

/// All of it in frames of 16 KiB.
fn frames(typed: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    for part in typed.chunks(16 * 1024) {
        Frame::Data(Bytes::copy_from_slice(part)).encode(&mut bytes);
    }
    bytes.freeze()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_answers_what_is_typed() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("");
    let mut client = node.write(&link, session).await;
    client.type_text("echo $((6 * 7)) $TERM $LANG; tty\r").await;
    client.read_text("42 xterm-256color C.UTF-8").await;
    client.read_text("/dev/pts/").await;
    client.type_text("exit 3\r").await;
    assert_eq!(client.finish().await, Frame::Exit { status: 3 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_what_was_asked_for() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw; exec env");
    let mut client = node.write(&link, session).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    let text = client.text();
    let mut names: Vec<&str> = text.lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    // `bash` adds some and removes the prompt.
    let of_bash = ["PWD", "SHLVL", "_"];
    names.retain(|name| !of_bash.contains(name));
    assert_eq!(names, ["GPUAAS_TERMINAL", "LANG", "PATH", "TERM"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_learns_the_size_of_the_terminal() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty -echo; stty size; read x; stty size; read x");
    let mut client = node.write(&link, session).await;
    client.read_text("24 80").await;
    client.send(Frame::Resize { columns: 132, rows: 43 }).await;
    client.type_text("\r").await;
    client.read_text("43 132").await;
    client.send(Frame::Resize { columns: 0, rows: 43 }).await;
    assert!(client.frame().await.is_err(), "a size that is none breaks the stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_megabyte_for_a_program_that_does_not_read_yet_blocks_nobody_and_arrives() {
    const LENGTH: usize = 1_000_000;
    let node = Node::new();
    let link = node.connect().await;
    let signal = node.path("signal");
    let waiting = wait_for(&signal);
    let session =
        node.session(&format!("stty raw -echo; echo ready; {waiting}; echo reads; head -c {LENGTH} | wc -c"));
    let mut client = node.write(&link, session).await;
    client.read_text("ready").await;
    let Client { mut sender, receiver, .. } = client;
    let mut pasted =
        tokio::spawn(async move { sender.send(frames(&vec![b'x'; LENGTH])).await.map(|()| sender) });
    // Others go on.
    let mut watcher = node.attach(&link, session, PtyAccess::Watch, 0).await;
    watcher.read_text("ready").await;
    let waited = tokio::time::timeout(A_WHILE, &mut pasted).await;
    assert!(waited.is_err(), "more was taken than the window");
    std::fs::write(&signal, "").unwrap();
    watcher.read_text("reads").await;
    assert_eq!(watcher.finish().await, Frame::Exit { status: 0 });
    assert!(watcher.text().contains(&LENGTH.to_string()), "{}", watcher.text());
    tokio::time::timeout(SOON, pasted).await.unwrap().unwrap().unwrap();
    drop(receiver);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_behind_a_paste_that_the_program_answers_do_not_stop_it() {
    const LENGTH: usize = 2_000_000;
    let node = Node::with(Limits { ring: 64 * 1024, ..Limits::default() });
    let (_, typed) = node.noise(LENGTH);
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut client = node.write(&link, session).await.without_acks();
    client.read_text("ready").await;
    let mut paste = BytesMut::from(frames(&typed));
    let Client { mut sender, mut receiver, received, .. } = client;
    let (progress, mut progressed) = watch::channel(received);
    // What a client does that knows nothing of the rule: it acknowledges after all that it types.
    let typing = async move {
        loop {
            sender.send(paste.split().freeze()).await.unwrap();
            Frame::Ack { sequence: *progressed.borrow_and_update() }.encode(&mut paste);
            sender.send(paste.split().freeze()).await.unwrap();
            progressed.changed().await.unwrap();
        }
    };
    let reading = async {
        let (mut output, mut decoder) = (Vec::new(), Decoder::default());
        while output.len() < LENGTH {
            let bytes = receiver.next().await.unwrap().expect("output");
            receiver.consumed(bytes.len()).unwrap();
            decoder.push(bytes.clone());
            while let Some(frame) = decoder.frame().unwrap() {
                let Frame::Data(bytes) = frame else { panic!("{frame:?}") };
                output.extend_from_slice(&bytes);
                progress.send_replace(received + output.len() as u64);
            }
        }
        output
    };
    let output = tokio::select! {
        () = typing => unreachable!(),
        output = tokio::time::timeout(SOON, reading) => output.expect("it does not stop"),
    };
    assert!(output == typed);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_newer_gateway_are_skipped_and_their_window_is_given_back() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut client = node.write(&link, session).await;
    client.read_text("ready").await;
    // Several windows of them.
    let mut unknown = BytesMut::new();
    for _ in 0..5 {
        unknown.put_u8(200);
        unknown.put_uint(LONGEST as u64, 3);
        unknown.put_bytes(0, LONGEST);
    }
    let sending = client.sender.send(unknown.freeze());
    tokio::time::timeout(SOON, sending).await.expect("the window is given back").unwrap();
    client.type_text("after").await;
    client.read_text("after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_too_long_and_an_acknowledgement_of_what_was_not_sent_break_the_stream() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut client = node.write(&link, session).await;
    client.read_text("ready").await;
    client.send(Frame::Ack { sequence: 6 }).await;
    assert!(client.frame().await.is_err());
    let mut client = node.attach(&link, session, PtyAccess::TakeOver, 5).await;
    client.send(Frame::Data(vec![0; INPUT_FRAME + 1].into())).await;
    assert!(client.frame().await.is_err());
    let mut client = Client::without_beginning(node.open(&link, session, PtyAccess::TakeOver).await);
    client.send(Frame::Ack { sequence: 1_000_000_000 }).await;
    assert!(client.frame().await.is_err());
    let mut client = Client::without_beginning(node.open(&link, session, PtyAccess::TakeOver).await);
    client.type_text("x").await;
    assert!(client.frame().await.is_err());
    assert_eq!(node.sessions.count(), 1, "the session goes on");
}
