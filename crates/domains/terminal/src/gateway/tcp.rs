//! SSH: from a WebSocket to a connection to the SSH server of a machine.
//!
//! Nothing is kept here but what is on its way: the client is not read while the node's window is full, and the node's window
//! is given back only after the client's socket took the bytes. The end of one direction does not end the other. It is
//! checked every second whether the client may still enter. A connection breaks with its gateway.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{
    extract::{
        Path, State,
        ws::{CloseFrame, Message, WebSocket, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use fleet::api::ReachError;
use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use kernel::ids::NodeId;
use node_proto::{
    contract::TunnelClass,
    grant::{Grant, SignedGrant, Target},
};
use node_tunnel::{OpenError, Receiver, Sender, Stream, StreamError};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Gateway,
    admit::{Admitted, Handshake, NOT_ACCEPTED, close},
    revocation::MustEnd,
};
use crate::model::{
    ssh::{LARGEST_SSH_MESSAGE, SSH_PROTOCOL, SshClientMessage, SshServerMessage},
    token::TokenKind,
};

/// The longest connection. Idle ones stay: people leave their windows open over night.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// A client that takes nothing for so long, while there is something to take, is cut off. One that was suspended may come back.
const STALL: Duration = Duration::from_secs(15 * 60);
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(95);
const FAREWELL: Duration = Duration::from_secs(2);
/// What is there already goes to the client at once, up to so many bytes.
const AT_ONCE: usize = 128 * 1024;

pub async fn upgrade_ssh(
    State(gateway): State<Gateway>,
    Path(allocation): Path<String>,
    handshake: Handshake,
) -> Response {
    let serving = gateway.clone();
    gateway.accept(handshake, SSH_PROTOCOL, LARGEST_SSH_MESSAGE, move |mut socket, token| async move {
        let consumed = serving.consume(token, &allocation, TokenKind::Ssh).await;
        let Some(admitted) = serving.admit(&mut socket, consumed).await else { return };
        serving.ssh_connect(socket, admitted).await;
    })
}

/// What the token sealed. It is not verified here, and not believed: the node verifies it.
fn sealed_grant(admitted: &Admitted) -> Option<(NodeId, SignedGrant)> {
    let grant = admitted.token.open(&admitted.consumed.sealed_grant)?;
    let described = serde_json::from_slice::<Grant>(&grant.payload.0).ok()?;
    matches!(described.target, Target::Tcp { .. }).then_some((described.node_id, grant))
}

/// How a connection ended, as the client is told. Nothing is said to one that is gone.
enum End {
    /// Both sides have sent all.
    Whole,
    ClientGone,
    Told(MustEnd),
}

impl Gateway {
    async fn ssh_connect(&self, mut socket: WebSocket, admitted: Admitted) {
        let began = Instant::now();
        let Some((node, grant)) = sealed_grant(&admitted) else {
            return close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await;
        };
        let consumed = admitted.consumed;
        let path = (consumed.project_id, consumed.allocation_id);
        let allowed = || self.allowed(&self.0.ssh_endpoint, consumed.sign_in, path);
        let principal = match allowed().await {
            Ok(principal) => principal,
            Err(failure) => {
                let why = MustEnd::refused(&failure);
                return Connection::new(socket).say_farewell(End::Told(why)).await;
            }
        };
        let stream = match self.0.tunnels.open(node, TunnelClass::Bulk, &grant).await {
            Ok(stream) => stream,
            Err(error) => {
                return Connection::new(socket).say_farewell(End::Told(refusal(&error))).await;
            }
        };
        metrics::histogram!("ssh_connect_seconds").record(began.elapsed().as_secs_f64());
        tracing::info!(allocation_id = %path.1, node_id = %node, "an SSH connection is open");
        metrics::gauge!("ssh_connections").increment(1.0);
        let connection = Connection::new(socket);
        let end = tokio::select! {
            end = connection.run(stream) => end,
            why = self.must_end(principal, began + LONGEST, allowed) => End::Told(why),
        };
        connection.say_farewell(end).await;
        metrics::gauge!("ssh_connections").decrement(1.0);
    }
}

/// The client's side.
struct Connection {
    to_client: Mutex<SplitSink<WebSocket, Message>>,
    from_client: Mutex<SplitStream<WebSocket>>,
    /// So much waits for the client to take it.
    waiting: AtomicUsize,
    /// The machine has sent all.
    node_done: CancellationToken,
}

impl Connection {
    fn new(socket: WebSocket) -> Self {
        let (to_client, from_client) = socket.split();
        Self {
            to_client: Mutex::new(to_client),
            from_client: Mutex::new(from_client),
            waiting: AtomicUsize::new(0),
            node_done: CancellationToken::new(),
        }
    }

    /// Until both directions have ended, or one of them broke.
    async fn run(&self, stream: Stream) -> End {
        let Stream { sender, receiver } = stream;
        let both = async { tokio::try_join!(self.read_client(sender), self.write_client(receiver)) };
        tokio::select! {
            ended = both => ended.map_or_else(|end| end, |_| End::Whole),
            end = self.ping_client() => end,
        }
    }

    /// Sends to the node what the client sends, as fast as the node takes it.
    async fn read_client(&self, mut sender: Sender) -> Result<Sender, End> {
        let mut socket = self.from_client.lock().await;
        loop {
            match self.client_message(&mut socket).await? {
                Message::Binary(bytes) => {
                    metrics::counter!("ssh_bytes_total", "direction" => "in").increment(bytes.len() as u64);
                    sender.send(bytes).await.map_err(|error| self.broken(&error))?;
                }
                Message::Text(text) => match serde_json::from_str(&text) {
                    Ok(SshClientMessage::Eof) => {
                        sender.finish().map_err(|error| self.broken(&error))?;
                        break;
                    }
                    Err(_) => return Err(protocol_error("the message is not known here")),
                },
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return Err(End::ClientGone),
            }
        }
        // The other direction goes on; only a client that is gone ends it.
        loop {
            let message = tokio::select! {
                message = self.client_message(&mut socket) => message?,
                () = self.node_done.cancelled() => return Ok(sender),
            };
            match message {
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Text(_) => {
                    return Err(protocol_error("nothing comes after eof"));
                }
                Message::Close(_) => return Err(End::ClientGone),
            }
        }
    }

    /// The next message. One that takes its time because there is something for it to take is not silent.
    async fn client_message(&self, socket: &mut SplitStream<WebSocket>) -> Result<Message, End> {
        loop {
            match timeout(SILENCE, socket.next()).await {
                Ok(Some(Ok(message))) => return Ok(message),
                Ok(Some(Err(_)) | None) => return Err(End::ClientGone),
                Err(_) if self.waiting.load(Ordering::Relaxed) > 0 => {}
                Err(_) => return Err(End::ClientGone),
            }
        }
    }

    /// Sends to the client what the node sends, as fast as the client takes it.
    async fn write_client(&self, mut receiver: Receiver) -> Result<(), End> {
        self.send([text(&SshServerMessage::Ready)]).await?;
        while let Some(bytes) = receiver.next().await.map_err(|error| self.broken(&error))? {
            self.pass_on(&mut receiver, bytes).await?;
        }
        self.send([text(&SshServerMessage::Eof)]).await?;
        self.node_done.cancel();
        Ok(())
    }

    /// So that a client that is gone is found while nothing is sent.
    async fn ping_client(&self) -> End {
        loop {
            tokio::time::sleep(PING_EVERY).await;
            if let Err(end) = self.send([Message::Ping(Bytes::new())]).await {
                return end;
            }
        }
    }

    /// With all that is there already: many small writes would cost more than one.
    async fn pass_on(&self, receiver: &mut Receiver, first: Bytes) -> Result<(), End> {
        let mut pieces = vec![first];
        let mut count = pieces[0].len();
        while count < AT_ONCE {
            // What is not bytes comes again.
            let Some(Ok(Some(bytes))) = receiver.next().now_or_never() else { break };
            count += bytes.len();
            pieces.push(bytes);
        }
        metrics::counter!("ssh_bytes_total", "direction" => "out").increment(count as u64);
        self.send(pieces.into_iter().map(Message::Binary)).await?;
        receiver.consumed(count).map_err(|error| self.broken(&error))
    }

    async fn send(&self, messages: impl IntoIterator<Item = Message>) -> Result<(), End> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sending = async {
            let mut sink = self.to_client.lock().await;
            for message in messages {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        let sent = timeout(STALL, sending).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(End::ClientGone) }
    }

    /// What comes after the machine has sent all is not missed.
    fn broken(&self, error: &StreamError) -> End {
        if self.node_done.is_cancelled() {
            return End::Whole;
        }
        tracing::debug!(%error, "an SSH connection broke off");
        let message = "the connection to the machine is lost".to_owned();
        End::Told(MustEnd { code: "tunnel_lost", message, retryable: true })
    }

    async fn say_farewell(&self, end: End) {
        let (message, code) = match end {
            End::ClientGone => return,
            End::Whole => (None, close_code::NORMAL),
            End::Told(MustEnd { code, message, retryable }) => {
                let error = SshServerMessage::SessionError { code, message, retryable };
                (Some(error), if retryable { close_code::AGAIN } else { close_code::POLICY })
            }
        };
        let saying = async {
            let mut sink = self.to_client.lock().await;
            if let Some(message) = &message {
                sink.send(text(message)).await?;
            }
            sink.send(Message::Close(Some(CloseFrame { code, reason: "".into() }))).await?;
            sink.close().await
        };
        let _ = timeout(FAREWELL, saying).await;
    }
}

fn text(message: &SshServerMessage) -> Message {
    Message::Text(message.text().into())
}

fn protocol_error(message: &str) -> End {
    End::Told(MustEnd { code: "protocol", message: message.to_owned(), retryable: false })
}

/// What a client is told of a node that does not open a connection, and whether a new token may help.
fn refusal(error: &ReachError) -> MustEnd {
    let (code, retryable) = match error {
        ReachError::NotConnected | ReachError::NotAsked => ("node_unreachable", true),
        ReachError::Open(OpenError::Refused(code)) => match code.as_str() {
            "no_ssh_server" => ("no_ssh_server", true),
            "too_many_streams" => ("too_many_connections", true),
            "no_such_owner" => ("machine_not_ready", true),
            "not_supported" | "port_not_allowed" => ("not_supported", false),
            "stopping" | "unavailable" | "too_slow" => ("node_unavailable", true),
            // A grant that came too late or from a signer that the node does not know yet.
            _ => ("grant_refused", true),
        },
        ReachError::Open(_) => ("tunnel_lost", true),
    };
    MustEnd { code, message: error.to_string(), retryable }
}
