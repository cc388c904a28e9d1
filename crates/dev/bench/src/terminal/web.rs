//! Terminals on a WebSocket: a client that does nothing but count, so that servers are measured.

use std::{io, net::TcpStream, time::Duration};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    Bytes, Error, HandshakeError, Message, Utf8Bytes, WebSocket, client,
    client::IntoClientRequest as _,
    http::{HeaderValue, Request, header},
};

use super::line::Terminal;

/// No message takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const PROTOCOL: &str = "gpuaas.terminal.v1";
/// Output is acknowledged when so many bytes of it have come.
const ACK_AFTER: u64 = 32 * 1024;
/// How terminado's messages of output begin; a string in JSON and a bracket follow.
const TERMINADO_OUTPUT: &str = r#"["stdout", "#;

type Socket = WebSocket<TcpStream>;

fn connect(address: &str, request: Request<()>) -> anyhow::Result<Socket> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(error)) => Err(error.into()),
        Err(HandshakeError::Interrupted(_)) => bail!("no WebSocket within {PATIENCE:?}"),
    }
}

/// A terminal of ours.
pub struct Ours {
    socket: Socket,
    pub session: String,
    /// Of the session, counted from its start.
    received: u64,
    acknowledged: u64,
    output: Bytes,
}

impl Ours {
    /// Until the session is ready.
    pub fn attach(address: &str, allocation: &str, token: &str, received: u64) -> anyhow::Result<Self> {
        let mut request = format!("ws://{address}/ws/terminal/{allocation}").into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse()?);
        let mut socket = connect(address, request)?;
        let attach = json!({ "type": "attach", "sequence": received, "columns": 80, "rows": 24 });
        socket.send(Message::text(attach.to_string()))?;
        let first = socket.read()?;
        let ready: Value = serde_json::from_str(first.to_text()?)?;
        ensure!(ready["type"] == "session_ready", "no terminal: {ready}");
        let session = ready["session_id"].as_str().context("a session without an id")?.to_owned();
        let received = ready["sequence"].as_u64().unwrap_or(received);
        Ok(Self { socket, session, received, acknowledged: received, output: Bytes::new() })
    }

    pub fn received(&self) -> u64 {
        self.received
    }

    /// Leaves the shell running, and waits until the gateway has understood.
    pub fn detach(mut self) -> anyhow::Result<()> {
        self.socket.send(Message::text(r#"{"type":"detach"}"#))?;
        self.read_to_end()
    }

    /// Ends the shell, and waits for its end.
    pub fn exit(mut self) -> anyhow::Result<()> {
        self.socket.get_ref().set_nonblocking(false)?;
        self.type_in(b"exit\n")?;
        self.read_to_end()
    }

    fn read_to_end(&mut self) -> anyhow::Result<()> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) if text.contains("session_error") => bail!("{text}"),
                Ok(_) => {}
                Err(Error::ConnectionClosed | Error::Protocol(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Without waiting, and reads what has come.
    pub fn answer_pings(&mut self) -> anyhow::Result<()> {
        self.socket.get_ref().set_nonblocking(true)?;
        loop {
            match self.next() {
                Ok(()) => {}
                Err(error) => match error.downcast::<Error>()? {
                    Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    error => return Err(error.into()),
                },
            }
        }
    }

    /// Waits for output.
    fn next(&mut self) -> anyhow::Result<()> {
        loop {
            match self.socket.read()? {
                Message::Binary(bytes) => {
                    self.received += bytes.len() as u64;
                    self.output = bytes;
                    if self.received - self.acknowledged >= ACK_AFTER {
                        self.acknowledged = self.received;
                        let ack = format!(r#"{{"type":"ack","sequence":{}}}"#, self.received);
                        self.socket.send(Message::text(ack))?;
                    }
                    return Ok(());
                }
                Message::Text(text) if text.contains("input_ack") => {}
                Message::Text(text) => bail!("{text} instead of output"),
                Message::Close(frame) => bail!("closed instead of output: {frame:?}"),
                _ => {}
            }
        }
    }
}

impl Terminal for Ours {
    fn type_in(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        Ok(self.socket.send(Message::binary(keys.to_vec()))?)
    }

    fn read(&mut self) -> anyhow::Result<&[u8]> {
        self.next()?;
        Ok(&self.output)
    }
}

/// A terminal of terminado.
pub struct Terminado {
    socket: Socket,
    output: String,
}

impl Terminado {
    pub fn open(address: &str) -> anyhow::Result<Self> {
        let request = format!("ws://{address}/terminal").into_client_request()?;
        Ok(Self { socket: connect(address, request)?, output: String::new() })
    }
}

fn terminado_output(text: &Utf8Bytes) -> anyhow::Result<Option<String>> {
    let Some(rest) = text.strip_prefix(TERMINADO_OUTPUT) else { return Ok(None) };
    let string = rest.strip_suffix(']').context("a message of terminado without its end")?;
    Ok(Some(serde_json::from_str(string)?))
}

impl Terminal for Terminado {
    fn type_in(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        let message = json!(["stdin", String::from_utf8_lossy(keys)]);
        Ok(self.socket.send(Message::text(message.to_string()))?)
    }

    fn read(&mut self) -> anyhow::Result<&[u8]> {
        loop {
            match self.socket.read()? {
                Message::Text(text) => {
                    if let Some(output) = terminado_output(&text)? {
                        self.output = output;
                        return Ok(self.output.as_bytes());
                    }
                }
                Message::Close(frame) => bail!("terminado closed: {frame:?}"),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_terminado_is_told_from_its_other_messages() {
        let read = |text: &'static str| terminado_output(&Utf8Bytes::from_static(text));
        assert_eq!(read(r#"["stdout", "a\r\n\u001b]"]"#).unwrap().as_deref(), Some("a\r\n\u{1b}]"));
        assert_eq!(read(r#"["setup", {}]"#).unwrap(), None);
        assert!(read(r#"["stdout", "a"#).is_err());
    }
}
