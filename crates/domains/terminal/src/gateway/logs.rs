//! A log of a node, followed by an operator: from a stream of the node to a WebSocket.
//!
//! The node's window is given back only after the client's socket took the lines, so a slow client costs the gateway no memory;
//! the node skips what it cannot send, and says how much that was. The client says nothing. It is checked every second whether
//! it may still read the log.

use std::time::Duration;

use axum::{
    extract::{
        Path, State,
        ws::{CloseFrame, Message, WebSocket, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use endpoint::SignIn;
use fleet::api::ReachError;
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use kernel::{Failure, ids::NodeId};
use node_proto::{
    contract::TunnelClass,
    grant::{Grant, SignedGrant, Target},
    log_stream::{LogItem, LogItems},
};
use node_tunnel::{OpenError, Receiver, Stream};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Gateway, NODE_TOO_OLD,
    admit::{Handshake, NOT_ACCEPTED, SocketKind, close},
    revocation::{MustEnd, Pause},
};
use crate::{
    http::logs::permission,
    model::{
        log::{LARGEST_CLIENT_MESSAGE, LOG_PROTOCOL, LogMessage, LogSource},
        token::TerminalToken,
    },
    service::upkeep::{ConsumedLogToken, log_token_consume},
};

/// Whoever follows for longer comes with a new token.
const LONGEST: Duration = Duration::from_secs(3600);
/// A client that takes nothing for so long is cut off.
const STALL: Duration = Duration::from_secs(120);
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(95);
/// A node that says nothing for so long, not even that nothing was logged, is gone.
const NODE_SILENCE: Duration = Duration::from_secs(60);
const FAREWELL: Duration = Duration::from_secs(2);

/// What a token allowed.
struct Admitted {
    node: NodeId,
    source: LogSource,
    sign_in: SignIn,
    grant: SignedGrant,
}

type Sink = SplitSink<WebSocket, Message>;

const LOG_SOCKET: SocketKind =
    SocketKind { protocol: LOG_PROTOCOL, largest_message: LARGEST_CLIENT_MESSAGE, read_buffer: 16 * 1024 };

pub async fn upgrade_logs(
    State(gateway): State<Gateway>,
    Path(node): Path<String>,
    handshake: Handshake,
) -> Response {
    let serving = gateway.clone();
    gateway.accept(handshake, LOG_SOCKET, move |mut socket, token| async move {
        let consumed = serving.log_token_consume(token, &node).await;
        let Some((consumed, token)) = serving.admit(&mut socket, consumed).await else { return };
        match admitted(consumed, &token) {
            Some(admitted) => serving.log_follow(socket, admitted).await,
            None => close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await,
        }
    })
}

/// What the token sealed. It is not verified here, and not believed: the node verifies it.
fn admitted(consumed: ConsumedLogToken, token: &TerminalToken) -> Option<Admitted> {
    let grant = token.open(&consumed.sealed_grant)?;
    let described = serde_json::from_slice::<Grant>(&grant.payload.0).ok()?;
    let Target::Log { source, .. } = &described.target else { return None };
    let source = LogSource::parse(source).filter(|_| described.node_id == consumed.node_id)?;
    Some(Admitted { node: consumed.node_id, source, sign_in: consumed.sign_in, grant })
}

impl Gateway {
    async fn log_token_consume(
        &self,
        token: Option<TerminalToken>,
        node: &str,
    ) -> Result<Result<(ConsumedLogToken, TerminalToken), &'static str>, Failure> {
        let Ok(node) = node.parse::<NodeId>() else { return Ok(Err("malformed")) };
        let look_up = |hash| log_token_consume(&self.0.terminals, hash);
        self.token_consume(token, look_up, |consumed: &ConsumedLogToken| {
            (consumed.node_id != node).then_some("other_node")
        })
        .await
    }

    async fn log_follow(&self, socket: WebSocket, admitted: Admitted) {
        let Admitted { node, source, sign_in, grant } = admitted;
        let mut endpoint = self.0.log_endpoint.clone();
        endpoint.permission = Some(permission(source));
        let (mut sink, listening) = socket.split();
        // Whether somebody may read such a log now, and who it is.
        let allowed = || self.0.services.still_allowed(&endpoint, sign_in, &[]);
        let principal = match allowed().await {
            Ok(principal) => principal,
            Err(failure) => {
                let why = MustEnd::refused(&failure);
                return say_farewell(&mut sink, why).await;
            }
        };
        let stream = match self.0.tunnels.open(node, TunnelClass::Interactive, &grant).await {
            Ok(stream) => stream,
            Err(error) => {
                let (code, retryable) = refusal(&error);
                let why = MustEnd { retryable, ..MustEnd::new(code, error.to_string()) };
                return say_farewell(&mut sink, why).await;
            }
        };
        tracing::info!(node_id = %node, source = source.name(), "a log is followed");
        metrics::gauge!("node_log_followers").increment(1.0);
        let ends_at = Instant::now() + LONGEST;
        let pause = Pause::new();
        let end = tokio::select! {
            why = pause.gate(to_client(stream, &mut sink)) => why,
            () = client_left(listening) => None,
            why = self.must_end(&pause, principal, ends_at, allowed) => Some(why),
        };
        metrics::gauge!("node_log_followers").decrement(1.0);
        if let Some(why) = end {
            say_farewell(&mut sink, why).await;
        }
    }
}

fn tunnel_lost() -> MustEnd {
    let message = "the connection to the node is lost".to_owned();
    MustEnd { retryable: true, ..MustEnd::new("tunnel_lost", message) }
}

/// Until the node or the client ends it. Nothing is said to a client that does not listen.
async fn to_client(stream: Stream, sink: &mut Sink) -> Option<MustEnd> {
    // Dropped only at the end: the node takes that for the end of the reader.
    let Stream { sender: _sender, mut receiver } = stream;
    let mut items = LogItems::default();
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.tick().await;
    let mut heard_at = Instant::now();
    loop {
        let (messages, received) = tokio::select! {
            next = next_items(&mut receiver, &mut items, heard_at + NODE_SILENCE) => match next {
                Ok((items, received)) => {
                    heard_at = Instant::now();
                    (messages(items), received)
                }
                Err(why) => return Some(why),
            },
            _ = ping.tick() => (vec![Message::Ping(Bytes::new())], 0),
        };
        if !send(sink, messages).await {
            return None;
        }
        if received > 0 && receiver.consumed(received).is_err() {
            return Some(tunnel_lost());
        }
    }
}

/// What came next, and how many bytes that were. Dropped while it waits, it has taken nothing.
async fn next_items(
    receiver: &mut Receiver,
    items: &mut LogItems,
    deadline: Instant,
) -> Result<(Vec<LogItem>, usize), MustEnd> {
    let Ok(Ok(Some(bytes))) = timeout_at(deadline, receiver.next()).await else { return Err(tunnel_lost()) };
    metrics::counter!("node_log_follow_bytes_total").increment(bytes.len() as u64);
    match items.push(&bytes) {
        Ok(items) => Ok((items, bytes.len())),
        Err(error) => {
            tracing::warn!(%error, "a log stream is broken off");
            Err(MustEnd::new("protocol", error.to_string()))
        }
    }
}

/// Lines that came together go together.
fn messages(items: Vec<LogItem>) -> Vec<Message> {
    let mut told: Vec<LogMessage> = Vec::new();
    for item in items {
        match (item, told.last_mut()) {
            (LogItem::Line(line), Some(LogMessage::Lines { lines })) => lines.push(line),
            (LogItem::Line(line), _) => told.push(LogMessage::Lines { lines: vec![line] }),
            (LogItem::Dropped { lines }, _) => {
                metrics::counter!("node_log_lines_dropped_total").increment(lines);
                told.push(LogMessage::Dropped { lines });
            }
            (LogItem::Live, _) => told.push(LogMessage::Live),
            (LogItem::KeepAlive | LogItem::Unknown, _) => {}
        }
    }
    told.iter().map(|message| Message::Text(message.text().into())).collect()
}

/// False when the client did not take it in time.
async fn send(sink: &mut Sink, messages: Vec<Message>) -> bool {
    let sending = async {
        for message in messages {
            sink.feed(message).await?;
        }
        sink.flush().await
    };
    matches!(timeout(STALL, sending).await, Ok(Ok(())))
}

/// Ends when the client leaves, is silent for too long, or says anything: it has nothing to say.
async fn client_left(mut socket: SplitStream<WebSocket>) {
    while let Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) = timeout(SILENCE, socket.next()).await {}
}

async fn say_farewell(sink: &mut Sink, why: MustEnd) {
    let MustEnd { code, message, retryable, .. } = why;
    let error = LogMessage::LogError { code, message, retryable };
    let frame = CloseFrame {
        code: if retryable { close_code::AGAIN } else { close_code::POLICY },
        reason: code.into(),
    };
    let saying = async {
        sink.send(Message::Text(error.text().into())).await?;
        sink.send(Message::Close(Some(frame))).await?;
        sink.close().await
    };
    let _ = timeout(FAREWELL, saying).await;
}

/// What a client is told of a node that does not open a stream, and whether a new token may help.
fn refusal(error: &ReachError) -> (&'static str, bool) {
    match error {
        ReachError::TooOld { .. } => (NODE_TOO_OLD, false),
        ReachError::NotConnected | ReachError::NotAsked => ("node_unreachable", true),
        ReachError::Open(OpenError::Refused(code)) => match code.as_str() {
            "no_such_log" => ("no_such_log", false),
            "log_unavailable" => ("log_unavailable", false),
            "too_many_readers" => ("too_many_readers", true),
            "not_supported" => ("not_supported", false),
            "stopping" | "unavailable" | "too_slow" => ("node_unavailable", true),
            // A grant that came too late or from a signer that the node does not know yet.
            _ => ("grant_refused", true),
        },
        ReachError::Open(_) => ("tunnel_lost", true),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use node_proto::contract::{LogLevel, LogLine};

    use super::*;

    fn line(message: &str) -> LogItem {
        let (at, source) = (DateTime::UNIX_EPOCH, "test".to_owned());
        let line = LogLine { at, level: LogLevel::Info, source, message: message.to_owned() };
        LogItem::Line(line.into())
    }

    #[test]
    fn lines_that_came_together_are_one_message_and_nothing_changes_its_place() {
        let items = vec![
            line("a"),
            line("b"),
            LogItem::KeepAlive,
            LogItem::Live,
            LogItem::Dropped { lines: 3 },
            line("c"),
        ];
        let texts: Vec<String> =
            messages(items).iter().map(|message| message.to_text().unwrap().to_owned()).collect();
        let kinds: Vec<serde_json::Value> =
            texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let seen: Vec<(&str, usize)> = kinds
            .iter()
            .map(|said| (said["type"].as_str().unwrap(), said["lines"].as_array().map_or(0, Vec::len)))
            .collect();
        assert_eq!(seen, [("lines", 2), ("live", 0), ("dropped", 0), ("lines", 1)]);
        assert_eq!(kinds[2]["lines"], 3);
    }
}
