//! Bytes between a WebSocket and a server on the machine: as they were, no more of them on their way than is allowed, and each
//! direction with an end of its own. A made-up server listens in the place of the SSH server.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use kernel::digest::sha256;
use serde_json::json;
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    Launched,
    refusals::{connect, control, token},
};
use crate::{
    allocations::real_host::Host,
    terminals::client::{SOON, Socket},
};

/// More than all buffers on the way hold together.
const MUCH: usize = 64 * 1024 * 1024;
/// Allocators keep some.
const GROWTH_KIB: i64 = 24 * 1024;
/// A pipe that takes nothing more in so many looks is full.
const SAMPLES: u32 = 8;
const SAMPLE_AFTER: Duration = Duration::from_millis(500);

fn resident_kib(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Repeats itself after no power of two.
fn pattern() -> Vec<u8> {
    (0..MUCH).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

async fn open(launched: &Launched, listener: &TcpListener) -> (Socket, TcpStream) {
    let token = token(&launched.bo, &launched.id).await;
    let mut socket = connect(&launched.world, &launched.id, &token).await;
    let accepted = tokio::time::timeout(SOON, listener.accept()).await.expect("a connection");
    assert_eq!(control(&mut socket).await, json!({ "type": "ready" }));
    (socket, accepted.unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_side_that_stops_reading_stops_the_other_and_nothing_is_lost_or_piled_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = Host::boot_with(Some(listener.local_addr().unwrap().port()));
    let launched = Launched::with_host(host).await;
    let pids = [launched.world.server.pid(), launched.host.agent_pid()];
    let memory = || pids.map(resident_kib);

    // From the machine, to a client that does not read.
    let (mut socket, mut server) = open(&launched, &listener).await;
    let before = memory();
    let all = pattern();
    let digest = sha256(&all);
    let (sent, mut progress) = tokio::sync::watch::channel(0);
    let writing = tokio::spawn(async move {
        for piece in all.chunks(64 * 1024) {
            server.write_all(piece).await.unwrap();
            sent.send_modify(|sent| *sent += piece.len());
        }
        server.shutdown().await.unwrap();
        server
    });
    while tokio::time::timeout(Duration::from_secs(2), progress.changed()).await.is_ok() {}
    let taken = *progress.borrow();
    assert!(taken < MUCH, "all of it was taken for a reader that reads nothing");
    for (before, now) in before.iter().zip(memory()) {
        assert!(now - before < GROWTH_KIB, "memory grew from {before} to {now} KiB");
    }
    let mut received = Vec::with_capacity(MUCH);
    loop {
        match tokio::time::timeout(SOON, socket.next()).await.expect("more") {
            Some(Ok(Message::Binary(bytes))) => received.extend_from_slice(&bytes),
            Some(Ok(Message::Text(text))) => {
                assert_eq!(text.as_str(), r#"{"type":"eof"}"#);
                break;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => panic!("{other:?} after {}", received.len()),
        }
    }
    assert_eq!((received.len(), sha256(&received)), (MUCH, digest));

    // The machine has sent all; the client goes on, to a server that does not read.
    let mut server = writing.await.unwrap();
    let before = memory();
    let (mut sink, mut stream) = socket.split();
    let (sent, mut progress) = tokio::sync::watch::channel(0);
    let writing = tokio::spawn(async move {
        for piece in received.chunks(32 * 1024) {
            sink.send(Message::binary(piece.to_vec())).await.unwrap();
            sent.send_modify(|sent| *sent += piece.len());
        }
        sink.send(Message::text(r#"{"type":"eof"}"#)).await.unwrap();
        sink
    });
    while tokio::time::timeout(Duration::from_secs(2), progress.changed()).await.is_ok() {}
    assert!(*progress.borrow() < MUCH, "all of it was taken for a server that reads nothing");
    for (before, now) in before.iter().zip(memory()) {
        assert!(now - before < GROWTH_KIB, "memory grew from {before} to {now} KiB");
    }
    let mut read = Vec::with_capacity(MUCH);
    tokio::time::timeout(SOON, server.read_to_end(&mut read)).await.expect("an end").unwrap();
    assert_eq!((read.len(), sha256(&read)), (MUCH, digest), "to its end");
    let _sink = writing.await.unwrap();
    let end = tokio::time::timeout(SOON, stream.next()).await.expect("an end");
    assert!(matches!(end, Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == 1000));

    last_words(&launched, &listener).await;
    ends(&launched, &listener).await;
}

/// Bytes that this end has sent and the other has not taken into its buffers.
fn on_the_way(server: &TcpStream) -> usize {
    let port = format!(":{:04X}", server.local_addr().unwrap().port());
    let remote = format!(":{:04X}", server.peer_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_this = |fields: &Vec<&str>| fields[1].ends_with(&port) && fields[2].ends_with(&remote);
    let line = lines.skip(1).find(is_this).expect("the connection");
    usize::from_str_radix(line[4].split_once(':').unwrap().0, 16).unwrap()
}

/// What a server has said arrives, also when it resets the connection because of what it has not read.
async fn last_words(launched: &Launched, listener: &TcpListener) {
    let (socket, mut server) = open(launched, listener).await;
    let (mut sink, mut stream) = socket.split();
    let sending =
        tokio::spawn(async move { while sink.send(Message::binary(vec![1; 32 * 1024])).await.is_ok() {} });
    let (mut said, piece) = (0, vec![7; 64 * 1024]);
    // Nobody reads, until nobody can say more and nothing more is taken.
    let (mut arrives, mut samples) = (0, 0);
    while samples < SAMPLES {
        if let Ok(count) = tokio::time::timeout(SAMPLE_AFTER, server.write(&piece)).await {
            said += count.unwrap();
            samples = 0;
            continue;
        }
        let taken = said - on_the_way(&server);
        samples = if taken == arrives { samples + 1 } else { 0 };
        arrives = taken;
    }
    drop(server);
    let mut received = 0;
    loop {
        match tokio::time::timeout(SOON, stream.next()).await.expect("more") {
            Some(Ok(Message::Binary(bytes))) => received += bytes.len(),
            Some(Ok(Message::Text(text))) => {
                assert_eq!(text.as_str(), r#"{"type":"eof"}"#, "{received} of {arrives}");
                break;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => panic!("{other:?} after {received} of {arrives}"),
        }
    }
    // What is taken after the last look arrives as well.
    assert!((arrives..=said).contains(&received), "{received} of {arrives} to {said}");
    sending.abort();
}

/// What ends on one side ends on the other.
async fn ends(launched: &Launched, listener: &TcpListener) {
    let (socket, mut server) = open(launched, listener).await;
    drop(socket);
    let mut byte = [0];
    let read = tokio::time::timeout(SOON, server.read(&mut byte)).await.expect("an end");
    assert!(matches!(read, Ok(0) | Err(_)), "the client is gone");

    let (mut socket, server) = open(launched, listener).await;
    server.set_zero_linger().unwrap();
    drop(server);
    assert_eq!(control(&mut socket).await["code"], "tunnel_lost", "broken off, and not ended");

    let (mut socket, mut server) = open(launched, listener).await;
    let released = launched.bo.release(&launched.id);
    let broken = async {
        eventually("the connection ends before the machine is taken away", || async {
            matches!(server.try_read(&mut [0; 16]), Ok(0)).then_some(())
        })
        .await;
        let _ = server.shutdown().await;
    };
    tokio::join!(released, broken);
    let said = control(&mut socket).await;
    assert!(said["code"] == "tunnel_lost" || said["code"] == "revoked", "{said}");
}
