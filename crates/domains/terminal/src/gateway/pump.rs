//! Bytes of one attachment, both ways, with nothing kept beyond its bounds.
//!
//! Three things go on at once: reading the client (never held up by the node: what it may send ahead is bounded), sending to
//! the node, and sending to the client (as fast as it takes; the node's window is given back only then).

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use kernel::ids::TerminalSessionId;
use node_tunnel::{
    Receiver, Sender, Stream, StreamError,
    frame::{CloseReason, Decoder, Frame},
    pieces::PIECE,
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::{
    input_ack::InputAck,
    queue::Queue,
    tape::{Tape, UNAVAILABLE, Unavailable},
};
use crate::model::{
    message::{ClientMessage, ServerMessage},
    session::Access,
};

/// Left free of the window to the node, for what controls a session.
///
/// HTTP/2 announces given back room late: up to a third of the window (22 KiB) may be free without the sender's knowing. More
/// than what is left beside a piece of input would be waited for without an end.
const SPARE: usize = 16 * 1024;
const FRAME_HEADER: usize = 4;
/// A client that takes nothing for so long is cut off; its session goes on.
const STALL: Duration = Duration::from_secs(120);
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(95);
const FAREWELL: Duration = Duration::from_secs(2);

/// How an attachment ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The session has ended on its node.
    Session { reason: &'static str, exit_status: Option<i32> },
    /// The session goes on.
    Attachment,
    /// The session goes on, and another client types.
    TakenOver,
}

/// What is told to the client at the end, and the code of the close.
struct Farewell {
    message: Option<ServerMessage>,
    code: u16,
}

type Sink = Mutex<SplitSink<WebSocket, Message>>;

pub struct Attachment {
    stream: Stream,
}

impl Attachment {
    /// Says what the client has, and its size.
    pub async fn start(
        mut stream: Stream,
        sequence: u64,
        (columns, rows): (u16, u16),
    ) -> Result<Self, StreamError> {
        stream.sender.send(Frame::Ack { sequence }.encoded()).await?;
        stream.sender.send(Frame::Resize { columns, rows }.encoded()).await?;
        Ok(Self { stream })
    }

    /// Until one of both sides ends it, or `must_end` does.
    pub async fn run(
        self,
        socket: WebSocket,
        ready: (TerminalSessionId, Access),
        tape: Option<Tape>,
        must_end: impl Future<Output = (&'static str, String, bool)>,
    ) -> End {
        let Stream { sender, receiver } = self.stream;
        let (to_client, from_client) = socket.split();
        let (sink, queue, taken) = (Mutex::new(to_client), Queue::default(), watch::Sender::new(0));
        let recorded = tape.as_ref();
        let (end, farewell) = tokio::select! {
            farewell = from_client_read(from_client, &queue, &sink, recorded) => (End::Attachment, farewell),
            farewell = to_node(sender, &queue, &taken) => (End::Attachment, farewell),
            (end, farewell) = to_client_write(receiver, &sink, taken.subscribe(), (ready, recorded)) => (end, farewell),
            farewell = keep_recording(recorded, &queue) => (End::Attachment, farewell),
            (code, message, retryable) = must_end => {
                let message = Some(ServerMessage::SessionError { code, message, retryable });
                let code = if retryable { close_code::RESTART } else { close_code::POLICY };
                (End::Attachment, Some(Farewell { message, code }))
            }
        };
        if let Some(tape) = tape {
            tape.finish(&end).await;
        }
        if let Some(Farewell { message, code }) = farewell {
            let _ = timeout(FAREWELL, say_farewell(&sink, message, code)).await;
        }
        end
    }
}

async fn say_farewell(sink: &Sink, message: Option<ServerMessage>, code: u16) -> Result<(), axum::Error> {
    let mut sink = sink.lock().await;
    if let Some(message) = message {
        sink.send(Message::Text(message.text().into())).await?;
    }
    sink.send(Message::Close(Some(CloseFrame { code, reason: "".into() }))).await?;
    sink.close().await
}

fn protocol_error(text: &str) -> Option<Farewell> {
    let message =
        ServerMessage::SessionError { code: "protocol", message: text.to_owned(), retryable: false };
    Some(Farewell { message: Some(message), code: close_code::PROTOCOL })
}

fn lost() -> Option<Farewell> {
    let message = ServerMessage::SessionError {
        code: "tunnel_lost",
        message: "the connection to the node is lost".to_owned(),
        retryable: true,
    };
    Some(Farewell { message: Some(message), code: close_code::AGAIN })
}

fn unavailable(_: Unavailable) -> Option<Farewell> {
    let (code, message) = ("recording_unavailable", UNAVAILABLE.to_owned());
    let message = Some(ServerMessage::SessionError { code, message, retryable: true });
    Some(Farewell { message, code: close_code::AGAIN })
}

/// Ends when the recording cannot go on; never without one.
async fn keep_recording(tape: Option<&Tape>, queue: &Queue) -> Option<Farewell> {
    match tape {
        Some(tape) => tokio::select! {
            error = tape.keep_storing(queue) => unavailable(error),
            () = tape.announce_recorded(queue) => None,
        },
        None => std::future::pending().await,
    }
}

/// Reads the client until it leaves. Nothing is said to one that is gone.
async fn from_client_read(
    mut socket: SplitStream<WebSocket>,
    queue: &Queue,
    sink: &Sink,
    tape: Option<&Tape>,
) -> Option<Farewell> {
    let typed = metrics::counter!("terminal_bytes_total", "direction" => "in");
    loop {
        let message = match timeout(SILENCE, socket.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(_)) | None) | Err(_) => return None,
        };
        match message {
            Message::Binary(bytes) => {
                typed.increment(bytes.len() as u64);
                if let Some(tape) = tape
                    && let Err(error) = tape.input(&bytes).await
                {
                    return unavailable(error);
                }
                if !queue.push_input(bytes) {
                    return protocol_error("more input is on its way than is allowed");
                }
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(ClientMessage::Resize { columns, rows }) => {
                    if let Some(tape) = tape
                        && let Err(error) = tape.resized(columns, rows).await
                    {
                        return unavailable(error);
                    }
                    queue.push(Frame::Resize { columns, rows });
                }
                Ok(ClientMessage::Ack { sequence }) => match tape {
                    Some(tape) => tape.acknowledge(sequence, queue),
                    None => queue.push(Frame::Ack { sequence }),
                },
                Ok(ClientMessage::Detach) => queue.push(Frame::Detach),
                Ok(ClientMessage::Ping) => {
                    let pong = Message::Text(ServerMessage::Pong.text().into());
                    if !matches!(
                        timeout(STALL, async { sink.lock().await.send(pong).await }).await,
                        Ok(Ok(()))
                    ) {
                        return None;
                    }
                }
                Ok(ClientMessage::Attach { .. }) | Err(_) => {
                    return protocol_error("the message is not known here");
                }
            },
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
        }
    }
}

/// Sends to the node what the client sent.
async fn to_node(mut sender: Sender, queue: &Queue, taken: &watch::Sender<u64>) -> Option<Farewell> {
    match to_node_until_detach(&mut sender, queue, taken).await {
        Ok(()) => Some(Farewell { message: None, code: close_code::NORMAL }),
        Err(_) => {
            // The node says why in what it sends, which ends the attachment; if it does not, the stream is broken.
            tokio::time::sleep(FAREWELL).await;
            lost()
        }
    }
}

async fn to_node_until_detach(
    sender: &mut Sender,
    queue: &Queue,
    taken: &watch::Sender<u64>,
) -> Result<(), StreamError> {
    loop {
        if let Some(frame) = queue.control() {
            sender.send(frame.encoded()).await?;
            if frame == Frame::Detach {
                sender.finish()?;
                return Ok(());
            }
            continue;
        }
        let Some(length) = queue.input_len() else {
            queue.changed().await;
            continue;
        };
        debug_assert!(length <= PIECE);
        tokio::select! {
            room = sender.room(FRAME_HEADER + length + SPARE) => {
                room?;
                let Some(piece) = queue.take_input() else { continue };
                let count = piece.len() as u64;
                sender.send(Frame::Data(piece).encoded()).await?;
                taken.send_modify(|taken| *taken += count);
            }
            () = queue.changed() => {}
        }
    }
}

/// Sends to the client what the node sent, and what the node has taken.
async fn to_client_write(
    mut receiver: Receiver,
    sink: &Sink,
    mut taken: watch::Receiver<u64>,
    (ready, tape): ((TerminalSessionId, Access), Option<&Tape>),
) -> (End, Option<Farewell>) {
    let mut decoder = Decoder::default();
    let mut is_ready = false;
    let printed = metrics::counter!("terminal_bytes_total", "direction" => "out");
    let mut input_ack = InputAck::default();
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.tick().await;
    loop {
        let mut messages = Vec::new();
        let mut received = 0;
        tokio::select! {
            bytes = receiver.next() => {
                let Ok(Some(bytes)) = bytes else { return (End::Attachment, lost()) };
                received = bytes.len();
                decoder.push(bytes);
                loop {
                    match decoder.frame() {
                        Ok(None) => break,
                        Ok(Some(frame)) => {
                            let frame = match record(tape, frame).await {
                                Ok(frame) => frame,
                                Err(error) => return (End::Attachment, unavailable(error)),
                            };
                            if let Frame::Data(bytes) = &frame {
                                printed.increment(bytes.len() as u64);
                            }
                            match frame_read(frame, ready, &mut is_ready) {
                                Said::Message(message) => messages.push(message),
                                Said::End(end, message) => {
                                    let sent = send(sink, messages).await;
                                    let farewell = Farewell { message: Some(message), code: close_code::NORMAL };
                                    return (end, sent.then_some(farewell));
                                }
                                Said::Nothing => {}
                            }
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a node sent what is no frame");
                            return (End::Attachment, lost());
                        }
                    }
                }
            }
            changed = taken.changed() => {
                if changed.is_ok() {
                    input_ack.note(*taken.borrow_and_update());
                }
            }
            () = input_ack.due() => {}
            _ = ping.tick() => messages.push(Message::Ping(Bytes::new())),
        }
        messages.extend(input_ack.message(!messages.is_empty()));
        if !send(sink, messages).await {
            return (End::Attachment, None);
        }
        if received > 0 && receiver.consumed(received).is_err() {
            return (End::Attachment, lost());
        }
    }
}

/// Records what the node sent, and leaves what the client does not have.
async fn record(tape: Option<&Tape>, frame: Frame) -> Result<Frame, Unavailable> {
    let Some(tape) = tape else { return Ok(frame) };
    match frame {
        Frame::Data(mut bytes) => {
            let known = tape.output(&bytes).await?;
            Ok(Frame::Data(bytes.split_off(known.min(bytes.len()))))
        }
        Frame::Ack { sequence } => {
            tape.set_position(sequence);
            Ok(Frame::Ack { sequence: sequence.max(tape.client_has()) })
        }
        other => Ok(other),
    }
}

enum Said {
    Message(Message),
    End(End, ServerMessage),
    Nothing,
}

fn frame_read(frame: Frame, (session_id, access): (TerminalSessionId, Access), is_ready: &mut bool) -> Said {
    let closed = |reason: &'static str, exit_status| {
        let message = ServerMessage::SessionClosed { reason, exit_status };
        let end = match reason {
            "taken_over" => End::TakenOver,
            _ => End::Session { reason, exit_status },
        };
        Said::End(end, message)
    };
    match frame {
        Frame::Data(bytes) if bytes.is_empty() => Said::Nothing,
        Frame::Data(bytes) => Said::Message(Message::Binary(bytes)),
        Frame::Ack { sequence } => {
            let message = if *is_ready {
                ServerMessage::Skipped { sequence }
            } else {
                *is_ready = true;
                ServerMessage::SessionReady { session_id, sequence, access }
            };
            Said::Message(Message::Text(message.text().into()))
        }
        Frame::Exit { status } => closed("exited", Some(status)),
        Frame::Close { reason: CloseReason::TakenOver } => closed(CloseReason::TakenOver.name(), None),
        Frame::Close { reason } => closed(reason.name(), None),
        Frame::Resize { .. } | Frame::Received { .. } | Frame::Recorded { .. } | Frame::Detach => {
            Said::Nothing
        }
    }
}

/// False when the client did not take it in time.
async fn send(sink: &Sink, messages: Vec<Message>) -> bool {
    if messages.is_empty() {
        return true;
    }
    let sending = async {
        let mut sink = sink.lock().await;
        for message in messages {
            sink.feed(message).await?;
        }
        sink.flush().await
    };
    matches!(timeout(STALL, sending).await, Ok(Ok(())))
}
