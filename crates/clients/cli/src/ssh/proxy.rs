//! Standard input and output on one side, a WebSocket on the other: what ssh runs as its `ProxyCommand`.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _, stream::SplitSink, stream::SplitStream};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::{
    failure::{Exit, Failure, Result},
    terminal::Socket,
};

/// The server sends a ping every 30 seconds.
const SILENCE: Duration = Duration::from_secs(95);
/// How long the machine may take to end after ssh has.
const LINGER: Duration = Duration::from_secs(10);
const PIECE: usize = 32 * 1024;
const EOF: &str = r#"{"type":"eof"}"#;

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

/// Until the machine has sent all. `allocation` is what the person calls it.
pub async fn run(
    socket: Socket,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    allocation: &str,
) -> Result {
    let (mut to_server, mut from_server) = socket.split();
    let sending = async {
        send_input(&mut input, &mut to_server).await?;
        // ssh has ended, and does not wait for more.
        tokio::time::sleep(LINGER).await;
        Ok(())
    };
    tokio::select! {
        ended = write_output(&mut from_server, &mut output, allocation) => ended,
        ended = sending => ended,
    }
}

fn lost(why: &str) -> Failure {
    Failure::new(Exit::Server, format!("the connection to the server is lost: {why}"))
}

async fn send_input(
    input: &mut (impl AsyncRead + Unpin),
    to_server: &mut SplitSink<Socket, Message>,
) -> Result {
    let mut buffer = vec![0; PIECE];
    loop {
        let count = input.read(&mut buffer).await.unwrap_or(0);
        let message = match count {
            0 => Message::text(EOF),
            count => Message::Binary(Bytes::copy_from_slice(&buffer[..count])),
        };
        if to_server.send(message).await.is_err() {
            // Why, the other direction says.
            return std::future::pending().await;
        }
        if count == 0 {
            return Ok(());
        }
    }
}

async fn write_output(
    from_server: &mut SplitStream<Socket>,
    output: &mut (impl AsyncWrite + Unpin),
    allocation: &str,
) -> Result {
    loop {
        let message = match timeout(SILENCE, from_server.next()).await {
            Err(_) => return Err(lost("it is silent")),
            Ok(None) => return Err(lost("it was closed")),
            Ok(Some(Err(error))) => return Err(lost(&error.to_string())),
            Ok(Some(Ok(message))) => message,
        };
        match message {
            Message::Binary(bytes) => {
                let written = async {
                    output.write_all(&bytes).await?;
                    output.flush().await
                };
                if written.await.is_err() {
                    // ssh has ended.
                    return Ok(());
                }
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(ServerMessage::Eof) => return Ok(()),
                Ok(ServerMessage::SessionError { code, message }) => {
                    return Err(refusal(code, &message, allocation));
                }
                Ok(ServerMessage::Other) => {}
                Err(_) => return Err(lost("what it sent cannot be read")),
            },
            Message::Close(frame) if frame.as_ref().is_some_and(|frame| u16::from(frame.code) == 4401) => {
                return Err(Failure::new(Exit::Auth, "the server did not accept the token"));
            }
            Message::Close(_) => return Err(lost("it was closed")),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// What the server said, and what to do about it.
fn refusal(code: String, message: &str, allocation: &str) -> Failure {
    let (exit, text, suggestion) = match code.as_str() {
        "not_supported" => (
            Exit::Conflict,
            format!("{allocation} has no SSH server to log in to"),
            Some(format!("Open a shell on it with: gpuaas terminal {allocation}")),
        ),
        "no_ssh_server" => (
            Exit::Server,
            "the SSH server of the machine does not answer".to_owned(),
            Some(format!("Open a shell on it with: gpuaas terminal {allocation}")),
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
