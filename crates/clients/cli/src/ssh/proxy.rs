//! Standard input and output on one side, a WebSocket on the other: what ssh runs as its `ProxyCommand`.
//!
//! The end of one direction does not end the other. The server is told every few seconds that this program is there, also while
//! ssh reads nothing: a suspended ssh finds its connection when it goes on. Nothing is read from the server meanwhile.

use std::{
    io::{self, IoSlice},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, Bytes, Message},
};

use crate::failure::{Exit, Failure, Result};

/// The server sends a ping every 30 seconds.
const SILENCE: Duration = Duration::from_secs(95);
/// The server gives up whoever says nothing for as long as [`SILENCE`].
const HEARTBEAT: Duration = Duration::from_secs(20);
/// When one direction has ended, the other ends too if nothing comes for so long.
const LINGER: Duration = Duration::from_secs(10);
/// Read from ssh at once; the largest message that the server takes.
const PIECE: usize = 64 * 1024;
/// Written to ssh at once.
const AT_ONCE: usize = 128 * 1024;
const EOF: &str = r#"{"type":"eof"}"#;

type Sink<Io> = SplitSink<WebSocketStream<Io>, Message>;
type Source<Io> = SplitStream<WebSocketStream<Io>>;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ServerMessage {
    Eof,
    SessionError {
        code: String,
        message: String,
    },
    /// `ready`, and what a newer server says.
    #[serde(other)]
    Other,
}

/// Until both directions have ended. `allocation` is what the person calls it. The output is dropped at its end, and stays open
/// after a failure until this program ends: ssh hangs up on it at the end of the output, and would hide why.
pub async fn run<Io: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<Io>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + 'static,
    allocation: &str,
) -> Result {
    let mut output = Some(output);
    let ended = carry(socket, input, &mut output, allocation).await;
    if ended.is_err() {
        Box::leak(Box::new(output));
    }
    ended
}

async fn carry<Io: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<Io>,
    input: impl AsyncRead + Unpin,
    output: &mut Option<impl AsyncWrite + Unpin>,
    allocation: &str,
) -> Result {
    let (mut to_server, mut from_server) = socket.split();
    let written = AtomicU64::new(0);
    let writing = write_output(&mut from_server, output, allocation, &written);
    tokio::pin!(writing);
    {
        let sending = send_input(input, &mut to_server);
        tokio::pin!(sending);
        tokio::select! {
            () = &mut sending => {}
            ended = &mut writing => {
                ended?;
                // The machine has sent all. What ssh still has to say is said.
                let _ = timeout(LINGER, sending).await;
                return Ok(());
            }
        }
    }
    // ssh has said all. What the machine has on its way still comes.
    loop {
        let before = written.load(Ordering::Relaxed);
        tokio::select! {
            ended = &mut writing => return ended,
            () = tokio::time::sleep(LINGER) => {}
        }
        if written.load(Ordering::Relaxed) == before {
            return Ok(());
        }
        let _ = timeout(LINGER, to_server.send(heartbeat())).await;
    }
}

fn lost(why: &str) -> Failure {
    Failure::new(Exit::Server, format!("the connection to the server is lost: {why}"))
}

/// A pong that nobody asked for, which needs no answer.
fn heartbeat() -> Message {
    Message::Pong(Bytes::new())
}

/// Until the input ends, and the server was told so.
async fn send_input<Io: AsyncRead + AsyncWrite + Unpin>(
    mut input: impl AsyncRead + Unpin,
    to_server: &mut Sink<Io>,
) {
    let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let mut buffer = Vec::with_capacity(PIECE);
    loop {
        let message = tokio::select! {
            read = input.read_buf(&mut buffer) => match read.unwrap_or(0) {
                0 => Message::text(EOF),
                _ => Message::Binary(std::mem::replace(&mut buffer, Vec::with_capacity(PIECE)).into()),
            },
            _ = beat.tick() => heartbeat(),
        };
        let is_end = matches!(message, Message::Text(_));
        if to_server.send(message).await.is_err() {
            // Why, the other direction says.
            return std::future::pending().await;
        }
        if is_end {
            return;
        }
    }
}

/// Until the machine has sent all. When ssh has ended, what comes is read and dropped, so that what was sent still arrives.
async fn write_output<Io: AsyncRead + AsyncWrite + Unpin>(
    from_server: &mut Source<Io>,
    output: &mut Option<impl AsyncWrite + Unpin>,
    allocation: &str,
    written: &AtomicU64,
) -> Result {
    let mut next = None;
    loop {
        let message = match next.take() {
            Some(message) => message,
            None => timeout(SILENCE, from_server.next()).await.map_err(|_| lost("it is silent"))?,
        };
        match message {
            None => return Err(lost("it was closed")),
            Some(Err(error)) => return Err(lost(&error.to_string())),
            Some(Ok(Message::Binary(bytes))) => {
                let (pieces, behind) = with_more(bytes, from_server);
                next = behind;
                let count: usize = pieces.iter().map(Bytes::len).sum();
                if let Some(to_ssh) = output {
                    match write_pieces(to_ssh, &pieces).await {
                        Ok(()) => drop(written.fetch_add(count as u64, Ordering::Relaxed)),
                        Err(_) => *output = None,
                    }
                }
            }
            Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(ServerMessage::Eof) => {
                    *output = None;
                    return Ok(());
                }
                Ok(ServerMessage::SessionError { code, message }) => {
                    return Err(refusal(code, &message, allocation));
                }
                Ok(ServerMessage::Other) => {}
                Err(_) => return Err(lost("what it sent cannot be read")),
            },
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map(|frame| u16::from(frame.code));
                return Err(match code {
                    Some(4401) => Failure::new(Exit::Auth, "the server did not accept the token"),
                    _ => lost("it was closed"),
                });
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
        }
    }
}

type Next = Option<std::result::Result<Message, tungstenite::Error>>;

/// With all bytes that are there already, and what came behind them.
fn with_more<Io: AsyncRead + AsyncWrite + Unpin>(
    first: Bytes,
    from_server: &mut Source<Io>,
) -> (Vec<Bytes>, Option<Next>) {
    let mut count = first.len();
    let mut pieces = vec![first];
    while count < AT_ONCE {
        match from_server.next().now_or_never() {
            Some(Some(Ok(Message::Binary(bytes)))) => {
                count += bytes.len();
                pieces.push(bytes);
            }
            behind => return (pieces, behind),
        }
    }
    (pieces, None)
}

async fn write_pieces(output: &mut (impl AsyncWrite + Unpin), pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    // Without empty ones, of which nothing can be written.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match output.write_vectored(rest).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut rest, count),
        }
    }
    output.flush().await
}

/// What the server said, and what to do about it.
fn refusal(code: String, message: &str, allocation: &str) -> Failure {
    let terminal = || format!("gpuaas terminal {allocation}");
    let (exit, text, suggestion) = match code.as_str() {
        "not_supported" => (
            Exit::Conflict,
            format!("{allocation} has no SSH server to log in to"),
            Some(format!("Open a shell on it with: {}", terminal())),
        ),
        "no_ssh_server" => (
            Exit::Server,
            "the SSH server of the machine does not answer".to_owned(),
            Some(format!("Open a shell on it with: {}", terminal())),
        ),
        "expired" => (
            Exit::Conflict,
            "the SSH connection was open for as long as the policy ssh.session_max_ttl_seconds allows"
                .to_owned(),
            Some(format!(
                "Connect again. What must outlive a connection runs in tmux, or in: {}",
                terminal()
            )),
        ),
        "revoked" => (Exit::Auth, format!("you may not be there any longer: {message}"), None),
        "not_allowed" => (Exit::Auth, message.to_owned(), None),
        _ => (Exit::Server, message.to_owned(), None),
    };
    Failure { suggestion, code: Some(code), ..Failure::new(exit, text) }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
