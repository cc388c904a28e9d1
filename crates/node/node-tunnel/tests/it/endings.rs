//! Ends of tunnels and streams, wanted and not.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use node_tunnel::{OpenError, Profile, StreamError, TunnelError, receive_into};
use tokio::net::{TcpListener, TcpStream};

use super::kit::{Pair, SOON, eventually, grant, sign, signer};

const HASTY: Profile = Profile {
    ping_every: Duration::from_millis(200),
    idle: Duration::from_millis(400),
    open_within: Duration::from_millis(500),
    ..Profile::INTERACTIVE
};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_gone_ends_everything_on_the_node() {
    let pair = Pair::new().await;
    let (_echo, _pour) = (pair.open("echo").await, pair.open("pour").await);
    let Pair { tunnel, targets, agent, .. } = pair;
    drop(tunnel);
    let _ = tokio::time::timeout(SOON, agent).await.expect("the agent notices").unwrap();
    eventually("all that was attached has ended", || targets.ended.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_breaks_its_streams_and_does_not_end_them() {
    let pair = Pair::new().await;
    let mut stream = pair.open("pour").await;
    stream.receiver.next().await.unwrap().unwrap();
    pair.agent.abort();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(SOON, receive_into(&mut stream.receiver, &mut rest)).await.unwrap();
    assert!(matches!(read, Err(StreamError::Broken(_))), "{read:?}");
    tokio::time::timeout(SOON, pair.tunnel.ended()).await.unwrap();
    assert!(pair.tunnel.open(&sign(&grant("echo"), &signer(1))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_takes_bytes_and_delivers_none_ends_the_tunnel_on_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(between.local_addr().unwrap()).await.unwrap();
    let inward = between.accept().await.unwrap().0;
    let outward = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let accepted = listener.accept().await.unwrap().0;
    let (mut inward, mut outward) = (inward, outward);
    let (cut, is_cut) = tokio::sync::oneshot::channel::<()>();
    let wire = tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut inward, &mut outward) => {}
            _ = is_cut => {}
        }
        // Both connections stay open, and nothing passes.
        std::future::pending::<()>().await;
    });
    let profile = Profile { idle: SOON, ..HASTY };
    let pair = Pair::on_sockets(dialled, accepted, profile).await;
    let mut stream = pair.open("echo").await;
    stream.sender.send(Bytes::from_static(b"here")).await.unwrap();
    assert_eq!(stream.receiver.next().await.unwrap().unwrap(), "here");
    cut.send(()).unwrap();
    tokio::time::timeout(SOON, pair.tunnel.ended()).await.expect("the gateway notices");
    let agent = tokio::time::timeout(SOON, pair.agent).await.expect("the agent notices").unwrap();
    assert!(matches!(agent, Err(TunnelError::NoAnswer)), "{agent:?}");
    assert!(stream.receiver.next().await.is_err());
    wire.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_without_streams_ends_and_one_with_a_silent_stream_does_not() {
    let pair = Pair::with(HASTY).await;
    let stream = pair.open("echo").await;
    let ended = tokio::time::timeout(3 * HASTY.idle, pair.tunnel.ended()).await;
    assert!(ended.is_err(), "a stream is open");
    drop(stream);
    tokio::time::timeout(SOON, pair.tunnel.ended()).await.unwrap();
    let _ = tokio::time::timeout(SOON, pair.agent).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_dropped_is_broken_for_the_other_side() {
    let pair = Pair::new().await;
    let mut stream = pair.open("sink").await;
    stream.sender.send(Bytes::from_static(b"half")).await.unwrap();
    drop(stream);
    eventually("the node knows that it is not whole", || pair.targets.broken.load(Ordering::SeqCst) == 1)
        .await;
    eventually("nothing is counted as open", || pair.tunnel.open_streams() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_gets_ready_is_given_up_in_time() {
    let pair = Pair::with(Profile { idle: SOON, ..HASTY }).await;
    let opened = tokio::time::timeout(SOON, pair.tunnel.open(&sign(&grant("hang"), &signer(1)))).await;
    match opened.unwrap() {
        Err(OpenError::Refused(reason)) => assert_eq!(reason, "too_slow"),
        Err(OpenError::NoAnswer(limit)) => assert_eq!(limit, HASTY.open_within),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    }
    eventually("nothing is counted as open", || pair.tunnel.open_streams() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_allowed_wait_and_are_given_up_in_time() {
    let pair = Pair::with(Profile { most_streams: 2, idle: SOON, ..HASTY }).await;
    let (first, _second) = (pair.open("echo").await, pair.open("echo").await);
    let third =
        tokio::time::timeout(SOON, pair.tunnel.open(&sign(&grant("echo"), &signer(1)))).await.unwrap();
    assert!(matches!(third, Err(OpenError::NoAnswer(_))), "a third is not opened");
    drop(first);
    let again = tokio::time::timeout(SOON, pair.tunnel.open(&sign(&grant("echo"), &signer(1)))).await;
    assert!(again.unwrap().is_ok(), "there is room again");
}
