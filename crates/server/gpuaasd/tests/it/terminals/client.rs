//! A client of terminals, as a browser or a program would be: it counts what it got, and acknowledges it.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use testkit::{Answer, Server, Tenant, eventually_within};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, Request, header},
    },
};

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(60);
/// A node has found its way back.
pub const LATER: Duration = Duration::from_secs(60);
const PROTOCOL: &str = "gpuaas.terminal.v1";
const ACK_AFTER: u64 = 32 * 1024;

pub type Socket = WebSocketStream<TcpStream>;

/// Where WebSockets are served: a server, or whatever stands before several.
pub trait HasAddress {
    /// `http://host:port`.
    fn address(&self) -> &str;
}

impl HasAddress for Server {
    fn address(&self) -> &str {
        &self.base
    }
}

pub async fn mint(tenant: &Tenant, allocation: &str, body: Value) -> Answer {
    tenant.api().post(&tenant.path(&format!("/{allocation}/terminal-token")), body).await
}

/// The text of a token that must be given.
pub async fn token(tenant: &Tenant, allocation: &str, body: Value) -> (String, String) {
    let made = mint(tenant, allocation, body).await.expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("token"), text("session_id"))
}

pub fn request(server: &impl HasAddress, path: &str) -> Request<()> {
    let url = format!("{}{path}", server.address().replace("http://", "ws://"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    request
}

pub async fn connect_with(server: &impl HasAddress, request: Request<()>) -> Result<Socket, Error> {
    let address = server.address().trim_start_matches("http://");
    let stream = TcpStream::connect(address).await.unwrap();
    let connecting = tokio_tungstenite::client_async(request, stream);
    tokio::time::timeout(SOON, connecting).await.expect("an answer").map(|(socket, _)| socket)
}

pub async fn connect(server: &impl HasAddress, allocation: &str, token: &str) -> Socket {
    let mut request = request(server, &format!("/ws/terminal/{allocation}"));
    request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    connect_with(server, request).await.expect("a WebSocket")
}

/// The code with which a server closes a socket that it does not accept.
pub async fn close_code(mut socket: Socket) -> Option<u16> {
    loop {
        match tokio::time::timeout(SOON, socket.next()).await.expect("an end") {
            Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// What a terminal said.
#[derive(Debug, PartialEq)]
pub enum Said {
    Output,
    Control(Value),
    Gone,
}

pub struct Terminal {
    socket: Socket,
    pub session: String,
    /// All output since this client attached.
    pub output: Vec<u8>,
    /// Of the session, counted from its start.
    pub received: u64,
    acknowledged: u64,
    pub acknowledges: bool,
    read_until: usize,
}

impl Terminal {
    /// A new session.
    pub async fn open(server: &impl HasAddress, tenant: &Tenant, allocation: &str) -> Self {
        let (token, session) = token(tenant, allocation, json!({})).await;
        Self::attach(server, allocation, &token, session, 0).await.expect("a terminal")
    }

    /// Attaches to the same session again, with what this client has, as soon as that is possible.
    pub async fn reattach(&self, server: &impl HasAddress, tenant: &Tenant, allocation: &str) -> Self {
        let attach = async || {
            let body = json!({ "session_id": self.session, "access": "take_over" });
            let (token, session) = token(tenant, allocation, body).await;
            match Self::attach(server, allocation, &token, session, self.received).await {
                Ok(terminal) => Some(terminal),
                Err(Said::Control(said)) if said["retryable"] == true => None,
                Err(other) => panic!("{other:?}"),
            }
        };
        eventually_within(LATER, "the terminal again", attach).await
    }

    /// The terminal, or the first thing that was said instead.
    pub async fn attach(
        server: &impl HasAddress,
        allocation: &str,
        token: &str,
        session: String,
        received: u64,
    ) -> Result<Self, Said> {
        let mut terminal = Self {
            socket: connect(server, allocation, token).await,
            session,
            output: Vec::new(),
            received,
            acknowledged: received,
            acknowledges: true,
            read_until: 0,
        };
        terminal.control(json!({ "type": "attach", "sequence": received, "columns": 80, "rows": 24 })).await;
        match terminal.next().await {
            Said::Control(ready) if ready["type"] == "session_ready" => {
                assert_eq!(ready["session_id"], terminal.session.as_str());
                terminal.received = ready["sequence"].as_u64().unwrap();
                terminal.acknowledged = terminal.received;
                Ok(terminal)
            }
            other => Err(other),
        }
    }

    pub async fn control(&mut self, message: Value) {
        let _ = self.socket.send(Message::Text(message.to_string().into())).await;
    }

    /// The connection ends without a word.
    pub async fn hang_up(&mut self) {
        self.socket.get_mut().shutdown().await.expect("the connection ends");
    }

    pub async fn type_in(&mut self, text: &str) {
        for piece in text.as_bytes().chunks(16 * 1024) {
            self.socket.send(Message::Binary(piece.to_vec().into())).await.expect("typing");
        }
    }

    pub async fn next(&mut self) -> Said {
        loop {
            let message = tokio::time::timeout(SOON, self.socket.next()).await.expect("something is said");
            match message {
                Some(Ok(Message::Binary(bytes))) => {
                    self.output.extend_from_slice(&bytes);
                    self.received += bytes.len() as u64;
                    if self.acknowledges && self.received - self.acknowledged >= ACK_AFTER {
                        self.acknowledge().await;
                    }
                    return Said::Output;
                }
                Some(Ok(Message::Text(text))) => {
                    let said: Value = serde_json::from_str(&text).unwrap();
                    if said["type"] != "input_ack" {
                        return Said::Control(said);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Said::Gone,
                Some(Ok(_)) => {}
            }
        }
    }

    pub async fn acknowledge(&mut self) {
        self.acknowledged = self.received;
        let sequence = self.received;
        self.control(json!({ "type": "ack", "sequence": sequence })).await;
    }

    /// Reads until this text was printed after the last one that was waited for; gives what came before it.
    pub async fn until(&mut self, text: &str) -> String {
        let deadline = tokio::time::Instant::now() + SOON;
        let mut searched = 0;
        loop {
            let rest = &self.output[self.read_until..];
            let found = rest[searched..].windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found.map(|at| searched + at) {
                let before = String::from_utf8_lossy(&rest[..at]).into_owned();
                self.read_until += at + text.len();
                return before;
            }
            searched = rest.len().saturating_sub(text.len());
            assert!(tokio::time::Instant::now() < deadline, "{text:?} in {:?}", self.tail());
            match self.next().await {
                Said::Output => {}
                other => panic!("{other:?} instead of {text:?} after {:?}", self.tail()),
            }
        }
    }

    /// What was printed so far is not looked at any more.
    pub fn forget_output(&mut self) {
        self.output.clear();
        self.read_until = 0;
    }

    /// Reads until so many bytes came after the text that was waited for.
    pub async fn take_output(&mut self, bytes: usize) {
        while self.output.len() < self.read_until + bytes {
            assert_eq!(self.next().await, Said::Output);
        }
    }

    /// All that came after the text that was waited for.
    pub fn rest(&self) -> &[u8] {
        &self.output[self.read_until..]
    }

    /// So many bytes after the text that was waited for.
    pub fn after_mark(&self, bytes: usize) -> &[u8] {
        &self.output[self.read_until..self.read_until + bytes]
    }

    /// Runs a command line and gives what it printed.
    pub async fn run(&mut self, line: &str) -> String {
        // The markers are not in what is echoed.
        self.type_in(&format!("echo be''gin-of-command; {line}; echo en''d-of-command\n")).await;
        self.until("begin-of-command\r\n").await;
        self.until("end-of-command\r\n").await.trim().to_owned()
    }

    /// Reads to the end; gives the last control message.
    pub async fn until_end(&mut self) -> Value {
        let mut last = Value::Null;
        loop {
            match self.next().await {
                Said::Output => {}
                Said::Control(said) => last = said,
                Said::Gone => return last,
            }
        }
    }

    fn tail(&self) -> String {
        let from = self.output.len().saturating_sub(2000);
        String::from_utf8_lossy(&self.output[from..]).into_owned()
    }
}
