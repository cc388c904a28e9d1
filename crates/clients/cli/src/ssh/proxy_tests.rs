use serde_json::json;
use tokio::{
    io::{DuplexStream, duplex},
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A proxy between a server and an ssh that a test plays, over connections in memory.
struct Played {
    server: WebSocketStream<DuplexStream>,
    /// What ssh writes and reads.
    to_proxy: DuplexStream,
    from_proxy: DuplexStream,
    proxy: JoinHandle<Result>,
}

async fn play() -> Played {
    let (client, server) = duplex(64 * 1024);
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
    let (to_proxy, input) = duplex(4096);
    let (output, from_proxy) = duplex(4096);
    let proxy = tokio::spawn(run(client, input, output, "train-1"));
    Played { server, to_proxy, from_proxy, proxy }
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(TIME_LIMIT, future).await.expect("in time")
}

async fn next(server: &mut WebSocketStream<DuplexStream>) -> Message {
    soon(server.next()).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_proxy_whose_ssh_is_suspended_is_heard_of_and_takes_no_more_than_it_can_hold() {
    const PIECES: usize = 1000;
    let Played { server, mut from_proxy, proxy, to_proxy: _to_proxy } = play().await;
    let (mut sink, mut stream) = server.split();
    let sent = std::sync::Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let sending = tokio::spawn(async move {
        for number in 0..PIECES {
            let byte = u8::try_from(number % 251).unwrap();
            sink.send(Message::binary(vec![byte; 4096])).await.unwrap();
            counted.fetch_add(4096, Ordering::Relaxed);
        }
        sink.send(Message::text(EOF)).await.unwrap();
        sink
    });
    // ssh reads nothing, for longer than a server waits for somebody who is silent.
    let began = Instant::now();
    while began.elapsed() < 3 * SILENCE {
        let heard = timeout(SILENCE / 2, stream.next()).await.expect("it is heard of");
        assert!(matches!(heard, Some(Ok(Message::Pong(_)))), "{heard:?}");
    }
    assert!(sent.load(Ordering::Relaxed) < 1024 * 1024, "no more than it can hold");
    // ssh goes on, and has missed nothing.
    let mut read = Vec::new();
    soon(from_proxy.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read.len(), PIECES * 4096);
    assert!(
        read.chunks(4096)
            .enumerate()
            .all(|(n, piece)| piece.iter().all(|byte| usize::from(*byte) == n % 251))
    );
    let _sink = soon(sending).await.unwrap();
    soon(proxy).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_machine_has_said_all_ssh_sees_its_end_and_can_still_speak() {
    let Played { mut server, mut to_proxy, mut from_proxy, proxy } = play().await;
    server.send(Message::binary(b"all".to_vec())).await.unwrap();
    server.send(Message::text(EOF)).await.unwrap();
    let mut read = Vec::new();
    soon(from_proxy.read_to_end(&mut read)).await.unwrap();
    assert_eq!(read, b"all");
    to_proxy.write_all(b"last words").await.unwrap();
    drop(to_proxy);
    assert_eq!(next(&mut server).await, Message::binary(b"last words".to_vec()));
    assert_eq!(next(&mut server).await, Message::text(EOF));
    soon(proxy).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_ssh_has_said_all_what_the_machine_has_on_its_way_still_comes() {
    let Played { mut server, to_proxy, mut from_proxy, proxy } = play().await;
    drop(to_proxy);
    assert_eq!(next(&mut server).await, Message::text(EOF));
    let saying = async {
        for _ in 0..5 {
            tokio::time::sleep(LINGER - Duration::from_secs(1)).await;
            server.send(Message::binary(b"more".to_vec())).await.unwrap();
        }
    };
    let mut read = Vec::new();
    let reading = soon(from_proxy.read_to_end(&mut read));
    let ((), reading) = tokio::join!(saying, reading);
    reading.unwrap();
    assert_eq!(read, b"more".repeat(5));
    // Nothing more comes, and nobody waits for ever.
    soon(proxy).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_ssh_said_before_it_ended_arrives_while_the_machine_speaks() {
    let Played { mut server, mut to_proxy, from_proxy, proxy } = play().await;
    drop(from_proxy);
    for _ in 0..3 {
        server.send(Message::binary(b"for nobody".to_vec())).await.unwrap();
    }
    to_proxy.write_all(b"last words").await.unwrap();
    assert_eq!(next(&mut server).await, Message::binary(b"last words".to_vec()));
    drop(to_proxy);
    assert_eq!(next(&mut server).await, Message::text(EOF));
    server.send(Message::text(EOF)).await.unwrap();
    soon(proxy).await.unwrap().unwrap();
}

#[test]
fn refusals_say_what_to_do_instead() {
    let refused = refusal("not_supported".to_owned(), "x", "train-1");
    assert_eq!(refused.exit, Exit::Conflict);
    assert!(refused.suggestion.unwrap().contains("gpuaas terminal train-1"));
    let expired = refusal("expired".to_owned(), "x", "train-1");
    assert!(expired.message.contains("ssh.session_max_ttl_seconds"), "{}", expired.message);
    assert!(expired.suggestion.unwrap().contains("Connect again"));
    assert_eq!(refusal("revoked".to_owned(), "you were signed out", "train-1").exit, Exit::Auth);
    assert_eq!(refusal("node_unreachable".to_owned(), "x", "train-1").exit, Exit::Server);
}

#[test]
fn messages_of_the_server_are_read_and_unknown_ones_are_not_an_end() {
    let read = |value: serde_json::Value| serde_json::from_value::<ServerMessage>(value);
    assert!(matches!(read(json!({ "type": "eof" })), Ok(ServerMessage::Eof)));
    assert!(matches!(read(json!({ "type": "ready" })), Ok(ServerMessage::Other)));
    assert!(matches!(read(json!({ "type": "news", "x": 1 })), Ok(ServerMessage::Other)));
    let error = json!({ "type": "session_error", "code": "c", "message": "m", "retryable": true });
    assert!(matches!(read(error), Ok(ServerMessage::SessionError { .. })));
}

#[tokio::test(start_paused = true)]
async fn ssh_sees_no_end_of_the_output_before_a_failure_was_told() {
    let Played { mut server, mut from_proxy, proxy, to_proxy: _to_proxy } = play().await;
    let error = json!({ "type": "session_error", "code": "expired", "message": "its time is over" });
    soon(server.send(Message::text(error.to_string()))).await.unwrap();
    assert!(soon(proxy).await.unwrap().is_err());
    let read = timeout(TIME_LIMIT, from_proxy.read_u8()).await;
    assert!(read.is_err(), "it stays open until the program ends: {read:?}");
}
