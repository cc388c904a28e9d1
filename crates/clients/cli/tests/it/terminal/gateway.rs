//! A server that a test plays: it mints tokens, and is the other end of terminals.

use std::{collections::HashMap, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role},
    },
};

pub const SESSION: &str = "term_0193b3a000007000800000000000c0de";
pub const ALLOCATION: &str = "alloc_0193b3a000007000800000000000c0de";
pub const PROJECT: &str = "proj_0193b3a000007000800000000000c0de";
/// What every token contains, and no output.
pub const IN_TOKENS: &str = "hush-hush";
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub struct Gateway {
    pub base: String,
    requests: mpsc::UnboundedReceiver<Request>,
    /// The token of the next connection.
    expected: String,
    minted: usize,
}

/// A request of which the head and the body are read.
struct Request {
    line: String,
    headers: HashMap<String, String>,
    body: Value,
    stream: TcpStream,
}

/// Somebody asks for a token.
pub struct Mint<'a> {
    pub body: Value,
    gateway: &'a mut Gateway,
    stream: TcpStream,
}

impl Gateway {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Some(request) = read(stream).await
                    && sender.send(request).is_err()
                {
                    return;
                }
            }
        });
        Self { base, requests, expected: String::new(), minted: 0 }
    }

    async fn request(&mut self) -> Request {
        timeout(TIME_LIMIT, self.requests.recv()).await.expect("a request in time").unwrap()
    }

    /// The next request, which asks for a token.
    pub async fn minting(&mut self) -> Mint<'_> {
        let Request { line, headers, body, stream } = self.request().await;
        let path = format!("/api/v1/projects/{PROJECT}/allocations/{ALLOCATION}/terminal-token");
        assert_eq!(line, format!("POST {path} HTTP/1.1"));
        assert_eq!(headers["authorization"], "Bearer sample");
        Mint { body, gateway: self, stream }
    }

    /// The next request, which connects with the last token.
    pub async fn connected(&mut self) -> Peer {
        let Request { line, headers, mut stream, .. } = self.request().await;
        assert_eq!(line, format!("GET /ws/terminal/{ALLOCATION} HTTP/1.1"));
        assert_eq!(headers["authorization"], format!("Bearer {}", std::mem::take(&mut self.expected)));
        assert_eq!(headers["sec-websocket-protocol"], "gpuaas.terminal.v1");
        let accept = derive_accept_key(headers["sec-websocket-key"].as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {accept}\r\nsec-websocket-protocol: gpuaas.terminal.v1\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        Peer { socket, attach: Value::Null }
    }

    /// Mints, connects and reads the first message.
    pub async fn attaching(&mut self) -> Peer {
        self.minting().await.accept().await;
        let mut peer = self.connected().await;
        peer.attach = peer.control("attach").await;
        peer
    }
}

impl Mint<'_> {
    pub async fn accept(self) {
        self.gateway.minted += 1;
        let token = format!("{IN_TOKENS}-{}", self.gateway.minted);
        self.gateway.expected = token.clone();
        let body = json!({
            "token": token, "session_id": SESSION, "expires_at": "2026-11-02T10:00:00Z",
            "url": format!("/ws/terminal/{ALLOCATION}"),
        });
        answer(self.stream, 201, &body).await;
    }

    pub async fn refuse(self, status: u16, code: &str) {
        let body = json!({ "error": { "code": code, "message": "No.", "suggestion": "", "correlation_id": "0193b3a0-0000-7000-8000-00000000c0de", "details": {} } });
        answer(self.stream, status, &body).await;
    }
}

async fn read(mut stream: TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            break end;
        }
        let read = stream.read_buf(&mut bytes).await.ok()?;
        if read == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines().map(str::to_owned);
    let line = lines.next()?;
    let headers: HashMap<String, String> = lines
        .filter_map(|line| {
            line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while body.len() < length {
        stream.read_buf(&mut body).await.ok()?;
    }
    let body = if length == 0 { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Request { line, headers, body, stream })
}

async fn answer(mut stream: TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// The other end of a terminal. Dropped, it cuts the connection.
pub struct Peer {
    socket: WebSocketStream<TcpStream>,
    /// The first message.
    pub attach: Value,
}

impl Peer {
    pub async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    pub async fn ready(&mut self, sequence: u64, access: &str) {
        let ready =
            json!({ "type": "session_ready", "session_id": SESSION, "sequence": sequence, "access": access });
        self.send(ready).await;
    }

    pub async fn output(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).await.unwrap();
    }

    pub async fn message(&mut self) -> Message {
        timeout(TIME_LIMIT, self.socket.next()).await.expect("a message in time").unwrap().unwrap()
    }

    /// The next control message of a type. Acknowledgements come at any time, so they are passed over.
    pub async fn control(&mut self, kind: &str) -> Value {
        loop {
            let message = self.message().await;
            let Message::Text(text) = &message else { panic!("not a control message: {message:?}") };
            let control: Value = serde_json::from_str(text).unwrap();
            if control["type"] == kind {
                return control;
            }
            assert_eq!(control["type"], "ack", "{control}");
        }
    }

    /// So many bytes of input, which are acknowledged.
    pub async fn input(&mut self, length: usize) -> String {
        let mut typed = Vec::new();
        while typed.len() < length {
            match self.message().await {
                Message::Binary(bytes) => typed.extend_from_slice(&bytes),
                Message::Text(text) if text.contains("ack") => {}
                other => panic!("not input: {other:?}"),
            }
        }
        self.send(json!({ "type": "input_ack", "bytes": typed.len() })).await;
        String::from_utf8(typed).unwrap()
    }

    pub async fn close(mut self, code: u16) {
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        let _ = self.socket.close(Some(frame)).await;
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    pub async fn session_closed(mut self, reason: &str, exit_status: Option<i64>) {
        let mut message = json!({ "type": "session_closed", "reason": reason });
        if let Some(status) = exit_status {
            message["exit_status"] = json!(status);
        }
        self.send(message).await;
        self.close(1000).await;
    }

    /// Waits until the client has closed.
    pub async fn closed(mut self) {
        let rest = async { while let Some(Ok(_)) = self.socket.next().await {} };
        timeout(TIME_LIMIT, rest).await.expect("it closes in time");
    }
}
