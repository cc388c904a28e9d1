//! Bounds in number and time.

use std::time::Duration;

use node_proto::grant::{PtyAccess, Target};
use node_terminal::Limits;
use node_tunnel::frame::{CloseReason, Frame};

use super::{
    client::Client,
    kit::{Node, eventually, owner, refused, sign},
};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_in_all_and_per_owner() {
    let node = Node::with(Limits { sessions: 3, sessions_per_owner: 2, ..Limits::default() });
    let link = node.connect().await;
    let sessions = [(); 2].map(|()| node.session("exec cat"));
    let mut clients = Vec::new();
    for session in sessions {
        clients.push(node.write(&link, session).await);
    }
    let third = node.session("exec cat");
    assert_eq!(node.refused(&link, third, PtyAccess::Write).await, "too_many_sessions");
    let mut grant = node.grant(third, PtyAccess::Write);
    grant.owner = owner(2);
    clients.push(Client::begin(link.tunnel.open(&sign(&grant)).await.unwrap(), 0).await);
    let mut grant = node.grant(node.session("exec cat"), PtyAccess::Write);
    grant.owner = owner(3);
    assert_eq!(refused(&link, &grant).await, "too_many_sessions");
    // One that has ended makes room.
    let mut ending = Client::without_beginning(node.open(&link, sessions[0], PtyAccess::End).await);
    assert_eq!(ending.finish().await, Frame::Close { reason: CloseReason::Ended });
    eventually("there is room", || node.sessions.count() == 2).await;
    // A grant is worth one stream.
    grant.grant_id = kernel::Ambient::system().uuid().into();
    clients.push(Client::begin(link.tunnel.open(&sign(&grant)).await.unwrap(), 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_are_attached_are_bounded_and_a_take_over_needs_no_more_room() {
    let node = Node::with(Limits { attached_per_session: 2, ..Limits::default() });
    let link = node.connect().await;
    let session = node.session("exec cat");
    let mut writer = node.write(&link, session).await;
    let mut watcher = node.attach(&link, session, PtyAccess::Watch, 0).await;
    assert_eq!(node.refused(&link, session, PtyAccess::Watch).await, "too_many_attached");
    let _second = node.attach(&link, session, PtyAccess::TakeOver, 0).await;
    assert_eq!(writer.finish().await, Frame::Close { reason: CloseReason::TakenOver });
    watcher.send(Frame::Detach).await;
    assert_eq!(watcher.frame().await.unwrap(), None);
    let _other = node.attach(&link, session, PtyAccess::Watch, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_time_to_live_also_when_it_is_busy() {
    let node = Node::with(Limits { ttl: SHORT, ..Limits::default() });
    let link = node.connect().await;
    let mut client = node.write(&link, node.session("exec yes")).await;
    assert_eq!(client.finish().await, Frame::Close { reason: CloseReason::Expired });
    eventually("nothing is left", || node.sessions.count() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_which_nothing_happens_ends() {
    let node = Node::with(Limits { idle: SHORT, ..Limits::default() });
    let link = node.connect().await;
    let mut client = node.write(&link, node.session("exec cat")).await;
    assert_eq!(client.finish().await, Frame::Close { reason: CloseReason::Idle });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grant_shortens_the_limits_of_the_node_and_nobody_needs_be_attached() {
    let node = Node::new();
    let link = node.connect().await;
    for shortened in ["ttl", "idle"] {
        let session = node.session("exec cat");
        let mut grant = node.grant(session, PtyAccess::Write);
        let Target::Pty(target) = &mut grant.target else { unreachable!() };
        match shortened {
            "ttl" => target.ttl_seconds = 1,
            _ => target.idle_seconds = 1,
        }
        let mut client = Client::begin(link.tunnel.open(&sign(&grant)).await.unwrap(), 0).await;
        client.send(Frame::Detach).await;
        eventually("it ends", || node.sessions.count() == 0).await;
        let reason = if shortened == "ttl" { CloseReason::Expired } else { CloseReason::Idle };
        let mut client = node.attach(&link, session, PtyAccess::Write, 0).await;
        assert_eq!(client.finish().await, Frame::Close { reason });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_run_at_once() {
    let node = std::sync::Arc::new(Node::new());
    let link = std::sync::Arc::new(node.connect().await);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (node, link) = (node.clone(), link.clone());
        clients.spawn(async move {
            let session = node.session("stty -echo; echo ready; read line; echo \"got $line\"; exec cat");
            let mut client = node.write(&link, session).await;
            client.read_text("ready").await;
            client.type_text(&format!("number {number}\r")).await;
            client.read_text(&format!("got number {number}\r\n")).await;
            client
        });
    }
    let mut clients = clients.join_all().await;
    assert_eq!(node.sessions.count(), 100);
    let (sessions, last) = (node.sessions.clone(), clients.iter_mut().map(Client::finish));
    let stopped = tokio::spawn(async move { sessions.stop().await });
    for last in last {
        assert_eq!(last.await, Frame::Close { reason: CloseReason::Stopping });
    }
    stopped.await.unwrap();
    assert_eq!(node.sessions.count(), 0);
}
