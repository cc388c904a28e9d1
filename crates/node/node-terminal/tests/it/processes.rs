//! Nothing is left running, whatever ends a session.

use kernel::ids::TerminalSessionId;
use node_proto::grant::PtyAccess;
use node_tunnel::frame::{CloseReason, Frame};

use super::{
    cgroups::{assert_writable, of_node},
    client::Client,
    kit::{Link, Node, eventually},
};

/// A time to sleep that no other process here has.
pub fn unique_sleep(session: TerminalSessionId) -> String {
    format!("1234567.{}", session.uuid().as_u128() % 1_000_000_000_000)
}

/// Processes that sleep for so long.
pub fn sleeping(time: &str) -> usize {
    let is_one = |entry: std::fs::DirEntry| {
        // A zombie has no command line.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line == format!("sleep\0{time}\0").into_bytes()
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("stat").exists())
        .map(is_one)
        .filter(|one| *one)
        .count()
}

/// A shell that has started processes which try to outlive it.
pub async fn shell_with_processes(node: &Node, link: &Link) -> (TerminalSessionId, String, Client) {
    assert_writable();
    let session = node.session("");
    let time = unique_sleep(session);
    let mut client = node.write(link, session).await;
    let commands = [
        format!("sleep {time} & disown\r"),
        format!("nohup sleep {time} >/dev/null 2>&1 &\r"),
        format!("setsid sleep {time} &\r"),
        // Without the marker of the session.
        format!("env -i nohup sleep {time} >/dev/null 2>&1 &\r"),
        format!("(trap '' HUP; setsid -f sleep {time})\r"),
        format!("(trap '' HUP TERM; sleep {time} & sleep {time} &)\r"),
        // Nothing but its control group tells whose it is.
        format!("env -i setsid -f sleep {time}\r"),
    ];
    for command in commands {
        client.type_text(&command).await;
    }
    eventually("all sleep", || sleeping(&time) == 8).await;
    (session, time, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_by_grant_leaves_no_process() {
    let node = Node::new();
    let link = node.connect().await;
    let (session, time, _client) = shell_with_processes(&node, &link).await;
    let mut ending = Client::without_beginning(node.open(&link, session, PtyAccess::End).await);
    assert_eq!(ending.finish().await, Frame::Close { reason: CloseReason::Ended });
    assert_eq!(sleeping(&time), 0, "the close is told when nothing is left");
    assert!(of_node(node.id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_exits_leaves_no_process() {
    let node = Node::new();
    let link = node.connect().await;
    let (_, time, mut client) = shell_with_processes(&node, &link).await;
    client.type_text("exit 5\r").await;
    assert_eq!(client.finish().await, Frame::Exit { status: 5 });
    eventually("nothing is left", || sleeping(&time) == 0 && of_node(node.id).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_is_killed_leaves_no_process() {
    let node = Node::new();
    let link = node.connect().await;
    let (_, time, mut client) = shell_with_processes(&node, &link).await;
    client.type_text("kill -KILL $$\r").await;
    assert_eq!(client.finish().await, Frame::Exit { status: 128 + 9 });
    eventually("nothing is left", || sleeping(&time) == 0 && of_node(node.id).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_dropped_leave_no_process() {
    let node = Node::new();
    let link = node.connect().await;
    let (_, time, client) = shell_with_processes(&node, &link).await;
    drop(client);
    link.cut().await;
    drop(node);
    eventually("nothing is left", || sleeping(&time) == 0).await;
}
