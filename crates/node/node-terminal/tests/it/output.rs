//! What a program prints arrives: all of it, once, however often the way to it breaks.

use std::time::Duration;

use node_proto::grant::PtyAccess;
use node_terminal::Limits;
use node_tunnel::frame::Frame;

use super::kit::{A_WHILE, Node, eventually, wait_for};

const RING: usize = 64 * 1024;

fn small_ring() -> Limits {
    Limits { ring: RING, ..Limits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_megabytes_arrive_as_they_were_printed() {
    let node = Node::new();
    let (path, bytes) = node.noise(20_000_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}", path.display()));
    let mut client = node.write(&link, session).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    assert!(client.output == bytes && client.jumps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_acknowledges_nothing_stops_the_program_and_loses_nothing() {
    let node = Node::with(small_ring());
    let (path, bytes) = node.noise(1_000_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}", path.display()));
    let mut client = node.write(&link, session).await.without_acks();
    client.read_bytes(RING).await;
    assert!(tokio::time::timeout(A_WHILE, client.next_frame()).await.is_err(), "more than the ring came");
    assert_eq!(node.produced(session), RING as u64);
    client.acknowledge().await;
    client.acknowledges = true;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    assert!(client.output == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_stops_the_program() {
    let node = Node::with(small_ring());
    let (path, bytes) = node.noise(1_000_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}", path.display()));
    let mut client = node.write(&link, session).await;
    eventually("the ring is full", || node.produced(session) == RING as u64).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    assert!(client.output == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_that_breaks_again_and_again_loses_and_repeats_nothing() {
    let node = Node::with(small_ring());
    let (path, bytes) = node.noise(2_000_000);
    let session = node.session(&format!("stty raw -echo; cat {}", path.display()));
    let (mut output, mut breaks) = (Vec::new(), 0_usize);
    while output.len() < bytes.len() - 300_000 {
        let link = node.connect().await;
        let mut client = node.attach(&link, session, PtyAccess::Write, output.len() as u64).await;
        assert_eq!(client.start, output.len() as u64);
        // Some breaks with all acknowledged, some with nothing.
        client.acknowledges = !breaks.is_multiple_of(3);
        let count = if client.acknowledges { 20_000 + 37_119 * (breaks % 5) } else { 50_001 };
        client.read_bytes(count).await;
        output.append(&mut client.output);
        link.cut().await;
        breaks += 1;
    }
    assert!(breaks > 10);
    let link = node.connect().await;
    let mut client = node.attach(&link, session, PtyAccess::Write, output.len() as u64).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    output.append(&mut client.output);
    assert!(output == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_gets_the_scrollback() {
    let node = Node::with(small_ring());
    let (path, bytes) = node.noise(3 * RING);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}; cat", path.display()));
    let mut client = node.write(&link, session).await;
    client.read_bytes(3 * RING).await;
    link.cut().await;
    let link = node.connect().await;
    let mut client = node.write(&link, session).await;
    assert_eq!(client.start, 2 * RING as u64);
    client.read_bytes(RING).await;
    assert!(client.output == bytes[2 * RING..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_detach_the_program_runs_on_and_a_later_client_begins_later() {
    let node = Node::with(small_ring());
    let (path, bytes) = node.noise(1_000_000);
    let link = node.connect().await;
    let signal = node.path("signal");
    let session =
        node.session(&format!("stty raw -echo; {}; cat {}; cat", wait_for(&signal), path.display()));
    let mut client = node.write(&link, session).await;
    client.send(Frame::Detach).await;
    assert_eq!(client.frame().await.unwrap(), None);
    std::fs::write(&signal, "").unwrap();
    eventually("the program has printed all", || node.produced(session) == bytes.len() as u64).await;
    let mut client = node.attach(&link, session, PtyAccess::Write, 17).await;
    assert_eq!(client.start, (bytes.len() - RING) as u64);
    client.read_bytes(RING).await;
    assert!(client.output == bytes[bytes.len() - RING..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_writer_was_cut_off_waits_for_the_grace_period_and_runs_on() {
    let node = Node::with(Limits { grace: Duration::from_secs(1), ..small_ring() });
    let (path, bytes) = node.noise(1_000_000);
    let link = node.connect().await;
    let session = node.session(&format!("stty raw -echo; cat {}; cat", path.display()));
    let mut client = node.write(&link, session).await.without_acks();
    client.read_bytes(RING).await;
    assert_eq!(node.produced(session), RING as u64);
    link.cut().await;
    eventually("the program has printed all", || node.produced(session) == bytes.len() as u64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_and_characters_in_pieces_pass_unchanged() {
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("stty raw -echo; printf ready; exec cat");
    let mut client = node.write(&link, session).await;
    client.read_text("ready").await;
    let typed = [&b"\xF0\x9F"[..], b"\x98\x80\xC3", b"\xA9\xFF\x00\x03"];
    for part in typed {
        client.send(Frame::Data(part.to_vec().into())).await;
    }
    client.read_bytes("ready".len() + 9).await;
    assert_eq!(&client.output["ready".len()..], typed.concat());
}
