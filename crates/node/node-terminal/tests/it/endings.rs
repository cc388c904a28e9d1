//! How sessions end, and what is known of them afterwards.

use std::time::Duration;

use node_proto::{contract::TerminalEndReason, grant::PtyAccess};
use node_terminal::Limits;
use node_tunnel::frame::{CloseReason, Frame};

use super::{
    client::Client,
    kit::{A_WHILE, Node, SOON, eventually, owner, refused, wait_for},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_a_signal_ended_says_which() {
    let node = Node::new();
    let link = node.connect().await;
    let mut client = node.write(&link, node.session("kill -TERM $$")).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 128 + 15 });
}

#[tokio::test(flavor = "multi_thread")]
async fn all_output_comes_before_the_status() {
    let node = Node::new();
    let (path, bytes) = node.noise(40_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}; exit 9", path.display()));
    let mut client = node.write(&link, session).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 9 });
    assert!(client.output == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_in_the_terminal_when_the_program_ends_is_not_lost_also_with_processes_left() {
    let node = Node::with(Limits { ring: 16 * 1024, ..Limits::default() });
    let (path, bytes) = node.noise(19_000);
    let link = node.connect().await;
    let ended = node.path("ended");
    let script =
        format!("stty raw -echo; sleep 1000 & cat {}; echo >{}; exit 9", path.display(), ended.display());
    let mut client = node.write(&link, node.session(&script)).await.without_acks();
    client.read_bytes(16 * 1024).await;
    eventually("the program ends", || ended.exists()).await;
    assert!(tokio::time::timeout(A_WHILE, client.next_frame()).await.is_err(), "more than the ring came");
    client.acknowledge().await;
    assert_eq!(client.finish().await, Frame::Exit { status: 9 });
    assert!(client.output == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_closed_its_terminal_still_has_a_status() {
    let node = Node::new();
    let link = node.connect().await;
    let signal = node.path("signal");
    let script = format!("exec <&- >&- 2>&-; {}; exit 4", wait_for(&signal));
    let mut client = node.write(&link, node.session(&script)).await;
    std::fs::write(&signal, "").unwrap();
    assert_eq!(client.finish().await, Frame::Exit { status: 4 });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_cut_off_when_the_program_ended_learns_its_last_bytes_and_its_status() {
    let node = Node::new();
    let link = node.connect().await;
    let signal = node.path("signal");
    let script = format!("stty raw -echo; printf first; {}; printf last; exit 7", wait_for(&signal));
    let session = node.session(&script);
    let mut client = node.write(&link, session).await;
    client.read_text("first").await;
    link.cut().await;
    std::fs::write(&signal, "").unwrap();
    eventually("it ends", || node.sessions.count() == 0).await;
    let link = node.connect().await;
    for access in [PtyAccess::Write, PtyAccess::TakeOver, PtyAccess::Watch] {
        let mut client = node.attach(&link, session, access, 5).await;
        assert_eq!(client.finish().await, Frame::Exit { status: 7 });
        assert_eq!(client.text(), "last");
    }
    let mut grant = node.grant(session, PtyAccess::Watch);
    grant.actor = "user_2".to_owned();
    assert_eq!(refused(&link, &grant).await, "not_your_session");
    let mut ending = Client::without_beginning(node.open(&link, session, PtyAccess::End).await);
    assert_eq!(ending.finish().await, Frame::Close { reason: CloseReason::Ended });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_the_last_output_of_a_recorded_session_only_if_it_is_recorded() {
    let node = Node::new();
    let link = node.connect().await;
    for (is_recorded, seen) in [(true, "firstlast"), (false, "first")] {
        let signal = node.path(&format!("signal-{is_recorded}"));
        let script = format!("stty raw -echo; printf first; {}; printf last; exit 7", wait_for(&signal));
        let session = node.session(&script);
        let mut writer = node.attach_recorded(&link, session, PtyAccess::Write).await;
        let mut watcher = node.attach_recorded(&link, session, PtyAccess::Watch).await.without_acks();
        writer.read_text("first").await;
        watcher.read_text("first").await;
        std::fs::write(&signal, "").unwrap();
        while !matches!(writer.frame().await.unwrap(), Some(Frame::Exit { status: 7 })) {}
        assert_eq!(writer.text(), "firstlast");
        let kept = if is_recorded {
            writer.send(Frame::Recorded { sequence: writer.received }).await;
            // As a gateway does: dropped, the stream would be reset, which discards what is on its way.
            writer.sender.finish().unwrap();
            Some(writer)
        } else {
            // The gateway is gone, and with it what it has not stored.
            drop(writer);
            None
        };
        assert_eq!(watcher.finish().await, Frame::Exit { status: 7 });
        assert_eq!(watcher.text(), seen);
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_is_reported_when_nobody_can_come_for_its_output_any_more() {
    let soon_forgotten = Limits { grace: Duration::from_millis(100), ..Limits::default() };
    for (limits, reported) in [(soon_forgotten, Some(TerminalEndReason::Exited)), (Limits::default(), None)] {
        let node = Node::with(limits);
        let link = node.connect().await;
        let session = node.session("exit 7");
        let mut client = node.write(&link, session).await;
        assert_eq!(client.finish().await, Frame::Exit { status: 7 });
        let report = || node.sessions.reports().into_iter().find(|report| report.session_id == session);
        if reported.is_some() {
            eventually("it is forgotten", || node.status(session).is_none()).await;
        }
        let report = report().expect("it is in the report");
        assert_eq!((report.end_reason, report.exit_status), (reported, reported.map(|_| 7)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_not_started_again_after_its_output_is_forgotten() {
    let node = Node::with(Limits { grace: Duration::from_millis(100), ..Limits::default() });
    let link = node.connect().await;
    let session = node.session("exit 0");
    let mut client = node.write(&link, session).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    eventually("it is forgotten", || node.status(session).is_none()).await;
    for access in [PtyAccess::Write, PtyAccess::TakeOver, PtyAccess::Watch, PtyAccess::End] {
        assert_eq!(node.refused(&link, session, access).await, "session_ended");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_by_grant_is_told_to_all_who_are_attached() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut writer = node.write(&link, session).await;
    let mut watcher = node.attach(&link, session, PtyAccess::Watch, 0).await;
    writer.read_text("ready").await;
    // Whoever may end it, the control plane decides.
    let mut grant = node.grant(session, PtyAccess::End);
    grant.actor = "admin_1".to_owned();
    let stream = link.tunnel.open(&super::kit::sign(&grant)).await.unwrap();
    let mut ending = Client::without_beginning(stream);
    assert_eq!(ending.finish().await, Frame::Close { reason: CloseReason::Ended });
    assert_eq!(node.sessions.count(), 0);
    assert_eq!(writer.finish().await, Frame::Close { reason: CloseReason::Ended });
    assert_eq!(watcher.finish().await, Frame::Close { reason: CloseReason::Ended });
    assert_eq!(watcher.text(), "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_owner_ends_its_sessions_and_no_others() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("exec cat");
    let mut client = node.write(&link, session).await;
    let mut grant = node.grant(node.session("exec cat"), PtyAccess::Write);
    grant.owner = owner(2);
    let _other = Client::begin(link.tunnel.open(&super::kit::sign(&grant)).await.unwrap(), 0).await;
    tokio::time::timeout(SOON, node.sessions.end_owner(owner(1))).await.unwrap();
    assert_eq!(node.sessions.count(), 1);
    assert_eq!(client.finish().await, Frame::Close { reason: CloseReason::Ended });
    assert_eq!(node.refused(&link, session, PtyAccess::Write).await, "session_ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_tells_whoever_is_attached_and_starts_nothing() {
    let node = Node::new();
    let link = node.connect().await;
    let mut client = node.write(&link, node.session("exec cat")).await;
    let (last, ()) = tokio::join!(client.finish(), node.sessions.stop());
    assert_eq!(last, Frame::Close { reason: CloseReason::Stopping });
    assert_eq!(node.sessions.count(), 0);
    assert_eq!(node.refused(&link, node.session("exec cat"), PtyAccess::Write).await, "stopping");
}
