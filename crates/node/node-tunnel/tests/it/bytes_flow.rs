//! Bytes arrive whole and in order, and never faster than they are taken.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use kernel::digest::sha256;
use node_tunnel::{Profile, Sender, Stream, receive_into, send_from};

use super::kit::{Pair, SOON, eventually};

/// Bytes without a pattern that a cut would leave the same.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

async fn echoed(stream: Stream, sent: Vec<u8>) -> Vec<u8> {
    let Stream { mut sender, mut receiver } = stream;
    let mut back = Vec::with_capacity(sent.len());
    let mut source = sent.as_slice();
    let (there, here) =
        tokio::join!(send_from(&mut source, &mut sender), receive_into(&mut receiver, &mut back));
    assert_eq!((there.unwrap(), here.unwrap()), (sent.len() as u64, sent.len() as u64));
    back
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_stream_comes_back_byte_identical() {
    for profile in [Profile::INTERACTIVE, Profile::BULK] {
        let pair = Pair::with(profile).await;
        let sent = noise(20_000_000);
        let back = tokio::time::timeout(SOON, echoed(pair.open("echo").await, sent.clone())).await.unwrap();
        assert_eq!(sha256(&back), sha256(&sent));
        assert_eq!(pair.targets.broken.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_share_a_tunnel() {
    let pair = Pair::new().await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(pair.open("echo").await);
    }
    assert_eq!(pair.tunnel.open_streams(), 1000);
    let mut running = tokio::task::JoinSet::new();
    for (n, stream) in streams.into_iter().enumerate() {
        running.spawn(async move {
            let sent = format!("stream {n} ").repeat(500).into_bytes();
            assert_eq!(echoed(stream, sent.clone()).await, sent);
        });
    }
    let all = async {
        while let Some(done) = running.join_next().await {
            done.unwrap();
        }
    };
    tokio::time::timeout(SOON, all).await.unwrap();
    eventually("all streams are over", || pair.tunnel.open_streams() == 0).await;
    eventually("and on the node", || pair.targets.ended.load(Ordering::SeqCst) == 1000).await;
}

/// Ends when a count did not grow for a while.
async fn settled(count: impl Fn() -> usize) -> usize {
    loop {
        let before = count();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if count() == before && before > 0 {
            return before;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stalls_stops_the_far_sender_within_a_window_and_nobody_else() {
    let pair = Pair::new().await;
    let mut stalled = pair.open("pour").await;
    let poured = || pair.targets.poured.load(Ordering::SeqCst);
    let window = Profile::INTERACTIVE.window as usize;
    let before = tokio::time::timeout(SOON, settled(poured)).await.unwrap();
    assert!(before <= 2 * window, "{before} bytes were sent to a reader that reads nothing");

    // Received and not consumed is not taken.
    let mut received = 0;
    while received < window {
        received += stalled.receiver.next().await.unwrap().unwrap().len();
    }
    let after = tokio::time::timeout(SOON, settled(poured)).await.unwrap();
    assert!(after <= 2 * window, "{after} bytes were sent ahead of a reader that wrote nothing on");

    let sent = noise(2_000_000);
    let back = tokio::time::timeout(SOON, echoed(pair.open("echo").await, sent.clone())).await.unwrap();
    assert_eq!(sha256(&back), sha256(&sent), "another stream flows");

    stalled.receiver.consumed(received).unwrap();
    let more = async {
        while received < 10 * window {
            let bytes = stalled.receiver.next().await.unwrap().unwrap();
            received += bytes.len();
            stalled.receiver.consumed(bytes.len()).unwrap();
        }
    };
    tokio::time::timeout(SOON, more).await.expect("it goes on when the reader goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_stalled_streams_leave_another_its_window() {
    let pair = Pair::new().await;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(pair.open("pour").await);
    }
    let poured = || pair.targets.poured.load(Ordering::SeqCst);
    tokio::time::timeout(SOON, settled(poured)).await.unwrap();
    let sent = noise(2_000_000);
    let back = tokio::time::timeout(SOON, echoed(pair.open("echo").await, sent.clone())).await.unwrap();
    assert_eq!(sha256(&back), sha256(&sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_direction_ends_before_the_other() {
    let pair = Pair::new().await;
    let Stream { mut sender, mut receiver } = pair.open("sink").await;
    async fn give(sender: &mut Sender) {
        for _ in 0..100 {
            sender.send(Bytes::from(vec![1; 10_000])).await.unwrap();
        }
        sender.finish().unwrap();
    }
    tokio::time::timeout(SOON, give(&mut sender)).await.unwrap();
    let mut told = Vec::new();
    tokio::time::timeout(SOON, receive_into(&mut receiver, &mut told)).await.unwrap().unwrap();
    assert_eq!(told, b"1000000");
}
