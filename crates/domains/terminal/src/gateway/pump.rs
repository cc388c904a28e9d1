//! Bytes of one attachment, both ways, with nothing kept beyond its bounds.
//!
//! Three things go on at once: reading the client (never held up by the node: what it may send ahead is bounded), sending to
//! the node, and sending to the client (as fast as it takes; the node's window is given back only then).

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use kernel::ids::TerminalSessionId;
use node_tunnel::{Receiver, Sender, Stream, StreamError, frame::Frame, pieces::PIECE};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::{
    farewell::{End, Farewell, lost, protocol_error, unavailable},
    input_ack::InputAck,
    meter::{Meter, Wait, WaitsFor},
    output::Output,
    queue::Queue,
    tape::Tape,
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
/// What is sent to a client at once, if so much is there: many small writes would cost more than one.
const AT_ONCE: usize = 64 * 1024;
/// A client that takes nothing for so long is cut off; its session goes on.
const STALL: Duration = Duration::from_secs(120);
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(95);
const FAREWELL: Duration = Duration::from_secs(2);

type Sink = Mutex<SplitSink<WebSocket, Message>>;

pub struct Attachment {
    stream: Stream,
    /// With which byte of its output the node was asked to go on.
    from: u64,
}

impl Attachment {
    /// Says what the client has, and its size.
    pub async fn start(
        mut stream: Stream,
        from: u64,
        (columns, rows): (u16, u16),
    ) -> Result<Self, StreamError> {
        stream.sender.send(Frame::Ack { sequence: from }.encoded()).await?;
        stream.sender.send(Frame::Resize { columns, rows }.encoded()).await?;
        Ok(Self { stream, from })
    }

    /// Until one of both sides ends it, or `must_end` does.
    pub async fn run(
        self,
        socket: WebSocket,
        ready: (TerminalSessionId, Access),
        (tape, meter): (Option<Tape>, Meter),
        must_end: impl Future<Output = (&'static str, String, bool)>,
    ) -> End {
        let Stream { mut sender, receiver } = self.stream;
        let (to_client, from_client) = socket.split();
        let (sink, queue, taken) = (Mutex::new(to_client), Queue::default(), watch::Sender::new(0));
        let recorded = tape.as_ref();
        let output = Output::new(ready, self.from, recorded);
        let (end, farewell) = tokio::select! {
            // Before all else: whoever was revoked during a pause sends and sees nothing of what waited for its end.
            biased;
            (code, message, retryable) = must_end => {
                let message = Some(ServerMessage::SessionError { code, message, retryable });
                let code = if retryable { close_code::RESTART } else { close_code::POLICY };
                (End::Attachment, Some(Farewell { message, code }))
            }
            farewell = from_client_read(from_client, &queue, &sink, recorded) => (End::Attachment, farewell),
            farewell = to_node(&mut sender, &queue, &taken, (recorded, &meter)) => (End::Attachment, farewell),
            (end, farewell) = to_client_write(receiver, &sink, taken.subscribe(), (output, &meter)) => (end, farewell),
            farewell = keep_recording(recorded, &queue) => (End::Attachment, farewell),
        };
        if let Some(tape) = tape {
            let last = Frame::Recorded { sequence: tape.recorded_until() };
            let telling = async {
                // Whoever was taken over is not attached any more, and the next one tells.
                if end != End::TakenOver {
                    let _ = timeout(FAREWELL, last_frame_send(&mut sender, last)).await;
                }
            };
            // At once: the next gateway waits for what is stored here, and the node may have no room.
            tokio::join!(telling, tape.finish(&end));
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
async fn to_node(
    sender: &mut Sender,
    queue: &Queue,
    taken: &watch::Sender<u64>,
    (tape, meter): (Option<&Tape>, &Meter),
) -> Option<Farewell> {
    match to_node_until_detach(sender, queue, taken, (tape, meter)).await {
        Ok(()) => Some(Farewell { message: None, code: close_code::NORMAL }),
        Err(_) => {
            // The node says why in what it sends, which ends the attachment; if it does not, the stream is broken.
            tokio::time::sleep(FAREWELL).await;
            lost()
        }
    }
}

/// Dropped while it waits, it has sent whole frames only: another one may follow.
async fn to_node_until_detach(
    sender: &mut Sender,
    queue: &Queue,
    taken: &watch::Sender<u64>,
    (tape, meter): (Option<&Tape>, &Meter),
) -> Result<(), StreamError> {
    loop {
        if let Some(frame) = queue.control() {
            if frame == Frame::Detach {
                // The node reads nothing after a detach.
                if let Some(tape) = tape {
                    frame_send_whole(sender, Frame::Recorded { sequence: tape.recorded_until() }).await?;
                }
                return last_frame_send(sender, frame).await;
            }
            frame_send_whole(sender, frame).await?;
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
                meter.note_typed();
                taken.send_modify(|taken| *taken += count);
            }
            () = queue.changed() => {}
        }
    }
}

async fn frame_send_whole(sender: &mut Sender, frame: Frame) -> Result<(), StreamError> {
    let frame = frame.encoded();
    sender.room(frame.len()).await?;
    sender.send(frame).await
}

async fn last_frame_send(sender: &mut Sender, frame: Frame) -> Result<(), StreamError> {
    frame_send_whole(sender, frame).await?;
    sender.finish()
}

/// Sends to the client what the node sent, and what the node has taken.
async fn to_client_write(
    mut receiver: Receiver,
    sink: &Sink,
    mut taken: watch::Receiver<u64>,
    (mut output, meter): (Output<'_>, &Meter),
) -> (End, Option<Farewell>) {
    let mut input_ack = InputAck::default();
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.tick().await;
    loop {
        let mut messages = Vec::new();
        let mut received = 0;
        let mut typed_at = None;
        tokio::select! {
            bytes = receiver.next() => {
                typed_at = meter.typed_at();
                let Ok(Some(bytes)) = bytes else { return (End::Attachment, lost()) };
                let mut next = Some(bytes);
                while let Some(bytes) = next.take() {
                    received += bytes.len();
                    if let Err((end, farewell)) = output.read(bytes, &mut messages).await {
                        let sent = send(sink, messages).await;
                        return (end, farewell.filter(|_| sent));
                    }
                    if received < AT_ONCE {
                        // What is not bytes comes again.
                        next = receiver.next().now_or_never().and_then(Result::ok).flatten();
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
        typed_at = typed_at.filter(|_| messages.iter().any(|message| matches!(message, Message::Binary(_))));
        if !send(sink, messages).await {
            return (End::Attachment, None);
        }
        if output.is_ready() {
            meter.note_ready();
        }
        if let Some(typed_at) = typed_at {
            meter.note_echo(typed_at);
        }
        if received > 0 && receiver.consumed(received).is_err() {
            return (End::Attachment, lost());
        }
    }
}

/// False when the client did not take it in time.
async fn send(sink: &Sink, messages: Vec<Message>) -> bool {
    if messages.is_empty() {
        return true;
    }
    let _wait = Wait::begin(WaitsFor::TerminalClient);
    let sending = async {
        let mut sink = sink.lock().await;
        for message in messages {
            sink.feed(message).await?;
        }
        sink.flush().await
    };
    matches!(timeout(STALL, sending).await, Ok(Ok(())))
}
