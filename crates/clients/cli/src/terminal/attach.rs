//! One attachment: from the first message on a connection to its end.
//!
//! One task does everything, and nothing that it waits for keeps it from the rest: messages are handed to the connection
//! and flushed in the background, output is written by the thread of `Screen`, and keys are read all the time. So the
//! escapes work while the machine takes no input, while the local terminal takes no output, and while the network is stuck.

use std::time::Duration;

use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Bytes, Error as SocketError, Message,
        error::ProtocolError,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::{
    flow::{Flow, Outgoing, Violation},
    local::{Event, Leave, Local},
    protocol::{Access, ClientMessage, ServerMessage, Size, TOKEN_REFUSED},
    screen::Screen,
};
use crate::failure::Failure;

/// From the first message to `session_ready`: a node that dials back, and a shell that starts.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// For the last messages of an attachment. They are a courtesy: the server notices a lost connection too.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How an attachment ended.
#[derive(Debug)]
pub enum End {
    /// The person left; the program goes on.
    Left(Leave),
    /// The session is over for this window.
    Closed {
        reason: String,
        exit_status: Option<i64>,
    },
    /// The server refuses, and would do so again.
    Refused {
        code: String,
        message: String,
    },
    TokenRefused,
    /// The connection is lost, or the server asks to come again.
    Lost {
        reason: Option<String>,
    },
    /// The server does not speak the protocol.
    Invalid {
        reason: String,
    },
    /// The local terminal fails.
    NoTerminal(Failure),
}

/// What is known of a session across its attachments.
#[derive(Default)]
pub struct Position {
    /// Output bytes of the session that were handed to the screen.
    pub sequence: u64,
    /// How often this process was attached.
    pub attachments: u32,
    /// Since when it is attached by this connection.
    pub ready_at: Option<Instant>,
}

pub struct Attachment<'a, S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    stream: SplitStream<WebSocketStream<S>>,
    local: &'a mut Local,
    screen: &'a Screen,
    position: &'a mut Position,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Attachment<'a, S> {
    pub fn new(
        socket: WebSocketStream<S>,
        local: &'a mut Local,
        screen: &'a Screen,
        position: &'a mut Position,
    ) -> Self {
        let (sink, stream) = socket.split();
        Self { sink, stream, local, screen, position }
    }

    /// Attaches, and carries bytes until the end.
    pub async fn run(mut self) -> End {
        let size = self.local.size();
        let access = match self.ready(size).await {
            Ok(access) => access,
            Err(end) => return self.finish(end).await,
        };
        if let Err(failure) = self.local.open() {
            return self.finish(End::NoTerminal(failure)).await;
        }
        let end = self.carry(access, size).await;
        self.finish(end).await
    }

    /// Says that the window is left on purpose, or waits for the close that follows a last message.
    async fn finish(&mut self, end: End) -> End {
        let leaves = matches!(end, End::Left(_) | End::NoTerminal(_));
        if leaves || matches!(end, End::Closed { .. } | End::Refused { .. }) {
            let closing = async {
                if leaves {
                    self.sink.send(text(&ClientMessage::Detach)).await?;
                    self.sink.send(Message::Close(None)).await?;
                }
                while let Some(Ok(_)) = self.stream.next().await {}
                Ok::<(), SocketError>(())
            };
            let _ = timeout(LEAVE_TIMEOUT, closing).await;
        }
        end
    }

    /// Sends the first message and waits for its answer.
    async fn ready(&mut self, size: Size) -> Result<Access, End> {
        let attach = ClientMessage::Attach { sequence: self.position.sequence, size };
        let deadline = Instant::now() + READY_TIMEOUT;
        self.sink.start_send_unpin(text(&attach)).map_err(|error| ended(&error))?;
        let mut flushing = true;
        loop {
            tokio::select! {
                // Why a connection cannot be written is what is read from it.
                _ = self.sink.flush(), if flushing => flushing = false,
                leave = self.local.left(self.screen) => return Err(End::Left(leave)),
                () = sleep_until(deadline) => return Err(lost_because("no answer in time")),
                received = self.stream.next() => match server_message(received)? {
                    Received::Control(ServerMessage::SessionReady { sequence, access, .. }) => {
                        self.started(sequence, access)?;
                        return Ok(access);
                    }
                    Received::Control(message) => self.control(message)?,
                    Received::Output(_) => return Err(invalid("it sent output before the session was ready")),
                    Received::Nothing => {}
                },
            }
        }
    }

    fn started(&mut self, sequence: u64, access: Access) -> Result<(), End> {
        let Some(missing) = sequence.checked_sub(self.position.sequence) else {
            return Err(invalid("it sends output again that was acknowledged"));
        };
        match (self.position.attachments, access) {
            (0, Access::Watch) => self.screen.notice("watching: what you type is not sent"),
            (0, _) => {}
            _ => self.screen.notice("connected again"),
        }
        if missing > 0 {
            self.screen.notice(&format!("{missing} bytes of earlier output were not kept"));
        }
        self.position.sequence = sequence;
        self.position.attachments += 1;
        self.position.ready_at = Some(Instant::now());
        Ok(())
    }

    async fn carry(&mut self, access: Access, size: Size) -> End {
        let mut flow = Flow::new(self.position.sequence, Instant::now());
        let mut progress = self.screen.progress();
        // It may have changed while the server answered.
        let now = self.local.size();
        if now != size {
            flow.resized(now);
        }
        let mut flushing = false;
        loop {
            if !flushing && let Some(message) = flow.message(Instant::now()) {
                // A flush has completed, so the connection has room for a message.
                if let Err(error) = self.sink.start_send_unpin(outgoing(message)) {
                    return self.last_message(ended(&error), &mut flow).await;
                }
                flushing = true;
            }
            let reads = self.screen.has_room();
            if !reads {
                // The server is not silent: it is not listened to until the terminal keeps up.
                flow.server_seen(Instant::now());
            }
            tokio::select! {
                flushed = self.sink.flush(), if flushing => match flushed {
                    Ok(()) => flushing = false,
                    Err(error) => return self.last_message(ended(&error), &mut flow).await,
                },
                received = self.stream.next(), if reads => {
                    flow.server_seen(Instant::now());
                    if let Err(end) = self.received(received, &mut flow) {
                        return end;
                    }
                }
                event = self.local.event(flow.input_has_room()) => match event {
                    Event::Text(bytes) if access != Access::Watch => flow.input_typed(&bytes),
                    Event::Text(_) => {}
                    Event::Help => self.screen.notice(&self.local.help()),
                    Event::Resized => flow.resized(self.local.size()),
                    Event::Leave(leave) => return End::Left(leave),
                },
                written = progress.changed() => match written {
                    Ok(sequence) => flow.output_written(sequence, Instant::now()),
                    Err(_) => {
                        return End::NoTerminal(Failure::client("the terminal cannot be written any more"));
                    }
                },
                () = sleep_until(flow.deadline()) => {
                    if flow.is_lost(Instant::now()) {
                        return lost_because("the server is silent");
                    }
                }
            }
        }
    }

    /// A connection that cannot be written may still hold the reason: the session ended, and the server closed.
    async fn last_message(&mut self, end: End, flow: &mut Flow) -> End {
        let read = async {
            loop {
                let received = self.stream.next().await;
                if let Err(end) = self.received(received, flow) {
                    return end;
                }
            }
        };
        match timeout(LEAVE_TIMEOUT, read).await {
            Ok(last @ (End::Closed { .. } | End::Refused { .. } | End::TokenRefused)) => last,
            _ => end,
        }
    }

    fn received(
        &mut self,
        received: Option<Result<Message, SocketError>>,
        flow: &mut Flow,
    ) -> Result<(), End> {
        match server_message(received)? {
            Received::Output(bytes) => {
                let sequence = flow.output_received(bytes.len());
                self.position.sequence = sequence;
                self.screen.output(bytes, sequence);
            }
            Received::Control(ServerMessage::InputAck { bytes }) => flow.input_taken(bytes)?,
            Received::Control(ServerMessage::Skipped { sequence }) => {
                let skipped = flow.output_skipped(sequence)?;
                self.position.sequence = sequence;
                self.screen.notice(&format!("{skipped} bytes of output were not kept"));
            }
            Received::Control(message) => self.control(message)?,
            Received::Nothing => {}
        }
        Ok(())
    }

    /// What may come at any time.
    fn control(&self, message: ServerMessage) -> Result<(), End> {
        match message {
            ServerMessage::Notice { message } => self.screen.notice(&message),
            ServerMessage::SessionError { message, retryable: true, .. } => {
                return Err(lost_because(message));
            }
            ServerMessage::SessionError { code, message, retryable: false } => {
                return Err(End::Refused { code, message });
            }
            ServerMessage::SessionClosed { reason, exit_status } => {
                return Err(End::Closed { reason, exit_status });
            }
            ServerMessage::SessionReady { .. }
            | ServerMessage::Skipped { .. }
            | ServerMessage::InputAck { .. } => {
                return Err(invalid("it sent a message at the wrong time"));
            }
            ServerMessage::Pong | ServerMessage::Unknown => {}
        }
        Ok(())
    }
}

enum Received {
    Output(Bytes),
    Control(ServerMessage),
    Nothing,
}

fn server_message(received: Option<Result<Message, SocketError>>) -> Result<Received, End> {
    match received {
        Some(Ok(Message::Binary(bytes))) => Ok(Received::Output(bytes)),
        Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
            Ok(message) => Ok(Received::Control(message)),
            Err(error) => Err(invalid(format!("a message cannot be read: {error}"))),
        },
        Some(Ok(Message::Close(frame))) => Err(closed(frame)),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(Received::Nothing),
        Some(Err(error)) => Err(ended(&error)),
        None => Err(lost()),
    }
}

/// A close without a message about the session.
fn closed(frame: Option<CloseFrame>) -> End {
    let code = frame.as_ref().map(|frame| frame.code);
    match code {
        Some(code) if u16::from(code) == TOKEN_REFUSED => End::TokenRefused,
        Some(
            code @ (CloseCode::Protocol
            | CloseCode::Unsupported
            | CloseCode::Invalid
            | CloseCode::Policy
            | CloseCode::Size),
        ) => invalid(format!("it closed the connection with the code {}", u16::from(code))),
        Some(CloseCode::Restart) => lost_because("the gateway restarts"),
        _ => lost(),
    }
}

fn ended(error: &SocketError) -> End {
    match error {
        SocketError::Protocol(
            ProtocolError::ResetWithoutClosingHandshake
            | ProtocolError::SendAfterClosing
            | ProtocolError::ReceivedAfterClosing,
        )
        | SocketError::Io(_)
        | SocketError::ConnectionClosed
        | SocketError::AlreadyClosed => lost(),
        other => invalid(other.to_string()),
    }
}

const fn lost() -> End {
    End::Lost { reason: None }
}

/// The server or the clock says why.
fn lost_because(reason: impl Into<String>) -> End {
    End::Lost { reason: Some(reason.into()) }
}

fn invalid(reason: impl Into<String>) -> End {
    End::Invalid { reason: reason.into() }
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        invalid(violation.0)
    }
}

fn outgoing(message: Outgoing) -> Message {
    match message {
        Outgoing::Control(message) => text(&message),
        Outgoing::Input(bytes) => Message::Binary(bytes.into()),
    }
}

fn text(message: &ClientMessage) -> Message {
    // A message is numbers and names: it always has a JSON form.
    Message::text(serde_json::to_string(message).unwrap_or_default())
}
