//! One attachment against a server that a test plays, over a connection in memory.

use std::{io::Read as _, os::unix::net::UnixStream, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{io::DuplexStream, sync::mpsc, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role},
    },
};

use super::{
    attach::{Attachment, End, Position},
    local::{Leave, Local},
    screen::Screen,
};

const ID: &str = "term_0193b3a000007000800000000000c0de";
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The server's side of a connection.
struct Peer(WebSocketStream<DuplexStream>);

impl Peer {
    async fn send(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn output(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    async fn next(&mut self) -> Message {
        timeout(TIME_LIMIT, self.0.next()).await.expect("a message in time").unwrap().unwrap()
    }

    async fn control(&mut self) -> Value {
        match self.next().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("not a control message: {other:?}"),
        }
    }

    async fn input(&mut self) -> Vec<u8> {
        match self.next().await {
            Message::Binary(bytes) => bytes.to_vec(),
            other => panic!("not input: {other:?}"),
        }
    }

    /// Takes the first message: its sequence.
    async fn attached(&mut self, sequence: u64, access: &str) -> u64 {
        let attach = self.control().await;
        assert_eq!(
            (&attach["type"], &attach["columns"], &attach["rows"]),
            (&json!("attach"), &json!(80), &json!(24))
        );
        self.send(
            json!({ "type": "session_ready", "session_id": ID, "sequence": sequence, "access": access }),
        )
        .await;
        attach["sequence"].as_u64().unwrap()
    }

    async fn close(&mut self, code: u16) {
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        let _ = self.0.close(Some(frame)).await;
    }
}

/// The client's side: a keyboard and a screen that belong to the test.
struct Window {
    keys: mpsc::Sender<Vec<u8>>,
    local: Local,
    screen: Screen,
    shown: UnixStream,
    position: Position,
}

impl Window {
    fn new() -> Self {
        let (keys, read) = mpsc::channel(64);
        let (shown, out) = UnixStream::pair().unwrap();
        let lines = out.try_clone().unwrap();
        let (local, screen) = (Local::of_keys(read), Screen::start(out, lines));
        Self { keys, local, screen, shown, position: Position::default() }
    }

    fn keyboard(&self) -> mpsc::Sender<Vec<u8>> {
        self.keys.clone()
    }

    async fn attach(&mut self, socket: WebSocketStream<DuplexStream>) -> End {
        let run = Attachment::new(socket, &mut self.local, &self.screen, &mut self.position).run();
        timeout(TIME_LIMIT, run).await.expect("the attachment ends in time")
    }

    /// Everything that was shown, at the end.
    fn shown(self) -> String {
        drop(self.screen);
        let mut shown = Vec::new();
        let mut from = self.shown;
        from.read_to_end(&mut shown).unwrap();
        String::from_utf8(shown).unwrap()
    }
}

/// Both ends of a connection that buffers so many bytes.
async fn connection(bytes: usize) -> (WebSocketStream<DuplexStream>, Peer) {
    let (client, server) = tokio::io::duplex(bytes);
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    (client, Peer(WebSocketStream::from_raw_socket(server, Role::Server, None).await))
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_exit_status_is_reported() {
    let mut window = Window::new();
    let (socket, mut peer) = connection(65_536).await;
    let keys = window.keyboard();
    let server = async move {
        assert_eq!(peer.attached(0, "write").await, 0);
        keys.send(b"echo".to_vec()).await.unwrap();
        let typed = peer.input().await;
        peer.output(&typed).await;
        assert_eq!(peer.control().await, json!({ "type": "ack", "sequence": 4 }));
        peer.send(json!({ "type": "notice", "code": "expires", "message": "Ends soon." })).await;
        peer.send(json!({ "type": "session_closed", "reason": "exited", "exit_status": 3 })).await;
        peer.close(1000).await;
        while let Some(Ok(_)) = peer.0.next().await {}
    };
    let (end, ()) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Closed { ref reason, exit_status: Some(3) } if reason == "exited"), "{end:?}");
    assert_eq!((window.position.sequence, window.position.attachments), (4, 1));
    assert_eq!(window.shown(), "echo\r\n[Ends soon.]\r\n");
}

#[tokio::test]
async fn no_more_than_the_window_is_sent_and_leaving_works_while_it_is_shut() {
    let mut window = Window::new();
    let (socket, mut peer) = connection(1024 * 1024).await;
    let keys = window.keyboard();
    let server = async move {
        peer.attached(0, "write").await;
        for _ in 0..48 {
            keys.send(vec![b'x'; 4096]).await.unwrap();
        }
        let mut taken = 0;
        while taken < 65_536 {
            let input = peer.input().await;
            assert!(input.len() <= 32_768);
            taken += input.len();
        }
        assert_eq!(taken, 65_536);
        peer.send(json!({ "type": "input_ack", "bytes": 1_000 })).await;
        let mut more = 0;
        while more < 1_000 {
            more += peer.input().await.len();
        }
        assert_eq!(more, 1_000);
        keys.send(b"\r~.".to_vec()).await.unwrap();
        assert_eq!(peer.control().await, json!({ "type": "detach" }), "and no input before it");
        while let Some(Ok(_)) = peer.0.next().await {}
    };
    let (end, ()) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Left(Leave::Detached)), "{end:?}");
}

#[tokio::test]
async fn output_is_acknowledged_when_the_terminal_took_it() {
    let mut window = Window::new();
    let (shown, out) = std::io::pipe().unwrap();
    // A pipe takes 64 KiB while nobody reads it.
    window.screen = Screen::start(out, std::io::stderr());
    let (socket, mut peer) = connection(1024 * 1024).await;
    let keys = window.keyboard();
    let sent: Vec<u8> = (0..98_304_u32).map(|n| n.to_le_bytes()[0]).collect();
    let expected = sent.clone();
    let server = async move {
        peer.attached(0, "write").await;
        for piece in sent.chunks(32_768) {
            peer.output(piece).await;
        }
        peer.0.send(Message::Ping("arrived".into())).await.unwrap();
        let (mut acknowledged, mut pending) = (0, true);
        while pending {
            match peer.next().await {
                Message::Text(text) => {
                    let ack: Value = serde_json::from_str(&text).unwrap();
                    acknowledged = ack["sequence"].as_u64().unwrap();
                    assert!(acknowledged <= 65_536, "{ack}");
                }
                // All of it arrived; keys work while the terminal takes nothing.
                Message::Pong(_) => keys.send(b"k".to_vec()).await.unwrap(),
                Message::Binary(typed) => pending = typed != b"k".as_slice(),
                other => panic!("{other:?}"),
            }
        }
        let read = std::thread::spawn(move || {
            let (mut shown, mut bytes) = (shown, vec![0; 98_304]);
            shown.read_exact(&mut bytes).unwrap();
            bytes
        });
        while acknowledged < 98_304 {
            acknowledged = peer.control().await["sequence"].as_u64().unwrap();
        }
        assert_eq!(acknowledged, 98_304);
        assert_eq!(read.join().unwrap(), expected);
        peer.close(1012).await;
        while let Some(Ok(_)) = peer.0.next().await {}
    };
    let (end, ()) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Lost { reason: Some(_) }), "{end:?}");
}

#[tokio::test]
async fn a_watcher_types_nothing_and_can_leave() {
    let mut window = Window::new();
    window.position.sequence = 10;
    let (socket, mut peer) = connection(65_536).await;
    let keys = window.keyboard();
    let server = async move {
        assert_eq!(peer.attached(15, "watch").await, 10);
        peer.output(b"se").await;
        peer.send(json!({ "type": "skipped", "sequence": 100 })).await;
        peer.output(b"en").await;
        while peer.control().await != json!({ "type": "ack", "sequence": 102 }) {}
        keys.send(b"rm\r~?~.".to_vec()).await.unwrap();
        assert_eq!(peer.control().await, json!({ "type": "detach" }));
        while let Some(Ok(_)) = peer.0.next().await {}
    };
    let (end, ()) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Left(Leave::Detached)), "{end:?}");
    let shown = window.shown();
    assert!(shown.contains("[watching: what you type is not sent]"), "{shown}");
    assert!(shown.contains("[5 bytes of earlier output were not kept]\r\nse\r\n"), "{shown}");
    assert!(shown.contains("[83 bytes of output were not kept]\r\nen"), "{shown}");
    assert!(shown.contains("~.  detach"), "{shown}");
}

#[tokio::test]
async fn the_last_message_is_read_from_a_connection_that_takes_no_more() {
    for _ in 0..16 {
        let mut window = Window::new();
        let (socket, mut peer) = connection(1_024).await;
        let keys = window.keyboard();
        let server = async move {
            peer.attached(0, "write").await;
            // More than the connection takes: the client is in the middle of a message.
            keys.send(vec![b'x'; 8_192]).await.unwrap();
            peer.send(json!({ "type": "session_closed", "reason": "exited", "exit_status": 0 })).await;
        };
        let (end, ()) = tokio::join!(window.attach(socket), server);
        assert!(matches!(end, End::Closed { exit_status: Some(0), .. }), "{end:?}");
    }
}

/// How an attachment ends whose server does this after the first message.
async fn end_after(messages: Vec<Message>) -> End {
    let mut window = Window::new();
    window.position.sequence = 10;
    let (socket, mut peer) = connection(1024 * 1024).await;
    let server = async move {
        peer.control().await;
        for message in messages {
            peer.0.send(message).await.unwrap();
        }
        while let Some(Ok(_)) = peer.0.next().await {}
    };
    tokio::join!(window.attach(socket), server).0
}

#[tokio::test]
async fn refusals_and_closes_are_told_apart() {
    let ready = |sequence: u64| {
        Message::text(
            json!({ "type": "session_ready", "session_id": ID, "sequence": sequence, "access": "write" })
                .to_string(),
        )
    };
    let error = |retryable: bool| {
        let error = json!({ "type": "session_error", "code": "c", "message": "m", "retryable": retryable });
        Message::text(error.to_string())
    };
    let close = |code: u16| Message::Close(Some(CloseFrame { code: code.into(), reason: "".into() }));
    assert!(matches!(end_after(vec![close(4401)]).await, End::TokenRefused));
    assert!(matches!(end_after(vec![error(false)]).await, End::Refused { code, .. } if code == "c"));
    assert!(matches!(end_after(vec![error(true)]).await, End::Lost { reason: Some(m) } if m == "m"));
    assert!(matches!(end_after(vec![ready(10), error(true)]).await, End::Lost { .. }));
    for code in [1000, 1001, 1011, 1012, 1013] {
        assert!(matches!(end_after(vec![ready(10), close(code)]).await, End::Lost { .. }), "{code}");
    }
    for code in [1002, 1003, 1007, 1008, 1009] {
        assert!(matches!(end_after(vec![ready(10), close(code)]).await, End::Invalid { .. }), "{code}");
    }
    for wrong in [
        vec![ready(9)],
        vec![ready(10), ready(10)],
        vec![Message::binary(b"early".to_vec())],
        vec![Message::text("{")],
        vec![ready(10), Message::text(r#"{"type":"input_ack","bytes":1}"#)],
        vec![ready(10), Message::text(r#"{"type":"skipped","sequence":9}"#)],
    ] {
        let shown = format!("{:?}", wrong.len());
        assert!(matches!(end_after(wrong).await, End::Invalid { .. }), "{shown}");
    }
    let unknown = Message::text(r#"{"type":"later"}"#);
    assert!(matches!(end_after(vec![unknown, ready(10), close(1012)]).await, End::Lost { .. }));
}

/// A watcher gets all that its connection takes, however little it acknowledged.
#[tokio::test]
async fn a_connection_is_not_read_faster_than_the_terminal_takes_it() {
    let mut window = Window::new();
    let mut shown = window.shown.try_clone().unwrap();
    let (socket, mut peer) = connection(64 * 1024).await;
    let server = async move {
        peer.attached(0, "watch").await;
        let mut sent = 0;
        // The connection is full when the client does not read it.
        while timeout(Duration::from_millis(500), peer.output(&[b'x'; 32_768])).await.is_ok() {
            sent += 32_768;
            assert!(sent < 2 * 1024 * 1024, "it keeps everything");
        }
        assert!(sent >= 512 * 1024, "{sent}");
        let read = std::thread::spawn(move || {
            let mut bytes = vec![0; 2 * 1024 * 1024];
            while shown.read(&mut bytes).is_ok_and(|count| count > 0) {}
        });
        // The rest of the message that did not fit, and the end.
        peer.0.flush().await.unwrap();
        peer.send(json!({ "type": "session_closed", "reason": "ended" })).await;
        drop(peer);
        read
    };
    let (end, read) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Closed { .. }), "{end:?}");
    drop(window);
    read.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_and_then_given_up() {
    let mut window = Window::new();
    let (socket, mut peer) = connection(65_536).await;
    let server = async move {
        peer.attached(0, "write").await;
        assert_eq!(peer.control().await, json!({ "type": "ping" }));
        peer.send(json!({ "type": "pong" })).await;
        assert_eq!(peer.control().await, json!({ "type": "ping" }));
        peer
    };
    let (end, _peer) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Lost { reason: Some(ref reason) } if reason.contains("silent")), "{end:?}");
    let (socket, mut peer) = connection(65_536).await;
    let server = async move {
        peer.control().await;
        peer
    };
    let (end, _peer) = tokio::join!(window.attach(socket), server);
    assert!(matches!(end, End::Lost { reason: Some(ref reason) } if reason.contains("in time")), "{end:?}");
}
