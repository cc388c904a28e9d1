//! Who may attach, and who writes.

use node_proto::grant::{PtyAccess, Target};
use node_terminal::Limits;
use node_tunnel::frame::{CloseReason, Frame};

use super::kit::{Node, eventually, owner, refused, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_is_refused_and_one_that_takes_over_continues() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut first = node.write(&link, session).await;
    first.read_text("ready").await;
    assert_eq!(node.refused(&link, session, PtyAccess::Write).await, "writer_attached");
    let mut second = node.attach(&link, session, PtyAccess::TakeOver, 5).await;
    // What is typed by who does not write any more goes nowhere.
    first.type_text("lost").await;
    assert_eq!(first.finish().await, Frame::Close { reason: CloseReason::TakenOver });
    second.type_text("taken").await;
    second.read_text("taken").await;
    assert_eq!(second.text(), "taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_takes_nothing_is_replaced_all_the_same() {
    let node = Node::new();
    let (path, bytes) = node.noise(1_000_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}", path.display()));
    // Its window is full, so it cannot be told.
    let _first = node.write(&link, session).await;
    eventually("the program prints", || node.produced(session) > 0).await;
    let mut second = node.attach(&link, session, PtyAccess::TakeOver, 0).await;
    assert_eq!(second.finish().await, Frame::Exit { status: 0 });
    assert!(second.output == bytes);
    eventually("the first is given up", || node.status(session).is_some_and(|status| status.attached == 0))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_what_the_writer_sees_and_types_nothing() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; head -c 5");
    let mut writer = node.write(&link, session).await;
    writer.read_text("ready").await;
    let mut watcher = node.attach(&link, session, PtyAccess::Watch, 0).await;
    watcher.type_text("not this").await;
    watcher.send(Frame::Resize { columns: 9, rows: 9 }).await;
    watcher.read_text("ready").await;
    writer.type_text("hello").await;
    assert_eq!(writer.finish().await, Frame::Exit { status: 0 });
    assert_eq!(watcher.finish().await, Frame::Exit { status: 0 });
    assert_eq!((writer.text().as_str(), watcher.text().as_str()), ("readyhello", "readyhello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_falls_behind_holds_up_nobody_and_is_told_where_it_goes_on() {
    const LENGTH: usize = 3_000_000;
    let node = Node::with(Limits { ring: 64 * 1024, ..Limits::default() });
    let (path, bytes) = node.noise(LENGTH);
    let link = node.connect().await;
    let signal = node.path("signal");
    let script = format!("stty raw -echo; {}; cat {}", wait_for(&signal), path.display());
    let session = node.session(&script);
    let mut writer = node.write(&link, session).await;
    let mut watcher = node.attach(&link, session, PtyAccess::Watch, 0).await;
    std::fs::write(&signal, "").unwrap();
    assert_eq!(writer.finish().await, Frame::Exit { status: 0 });
    assert!(writer.output == bytes);
    assert_eq!(watcher.finish().await, Frame::Exit { status: 0 });
    assert_eq!(watcher.received, LENGTH as u64);
    assert!(!watcher.jumps.is_empty() && watcher.output.len() < LENGTH);
    let ends = watcher.jumps.iter().map(|(_, at)| *at).skip(1).chain([watcher.output.len()]);
    for ((sequence, from), to) in watcher.jumps.iter().zip(ends) {
        let sequence = usize::try_from(*sequence).unwrap();
        assert!(watcher.output[*from..to] == bytes[sequence..sequence + to - from]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_people_and_other_owners_are_refused() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("exec cat");
    let _writer = node.write(&link, session).await;
    for access in [PtyAccess::Write, PtyAccess::TakeOver, PtyAccess::Watch] {
        let mut grant = node.grant(session, access);
        grant.actor = "user_2".to_owned();
        assert_eq!(refused(&link, &grant).await, "not_your_session");
    }
    for access in [PtyAccess::Write, PtyAccess::TakeOver, PtyAccess::Watch, PtyAccess::End] {
        let mut grant = node.grant(session, access);
        grant.owner = owner(2);
        assert_eq!(refused(&link, &grant).await, "not_your_session");
    }
    assert_eq!(node.sessions.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_cannot_be_watched_ended_or_started() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("absent");
    assert_eq!(node.refused(&link, session, PtyAccess::Watch).await, "no_such_session");
    assert_eq!(node.refused(&link, session, PtyAccess::Write).await, "start_failed");
    // Nothing was started, so it may be tried again.
    assert_eq!(node.refused(&link, session, PtyAccess::TakeOver).await, "start_failed");
    let mut grant = node.grant(session, PtyAccess::Write);
    grant.target = Target::Tcp { port: 22, ttl_seconds: None };
    assert_eq!(refused(&link, &grant).await, "not_supported");
    // Who ends what has not begun keeps it from beginning.
    let ended = node.session("");
    assert_eq!(node.refused(&link, ended, PtyAccess::End).await, "no_such_session");
    assert_eq!(node.refused(&link, ended, PtyAccess::Write).await, "session_ended");
    assert_eq!(node.sessions.count(), 0);
}
