//! SSH through a WebSocket: binary messages are bytes of the connection; text messages are JSON.
//!
//! Neither side acknowledges anything: a side that does not read its socket stops the other, through to the program on the
//! machine. `eof` ends one direction and not the other. The connection breaks with its gateway; whoever wants it to outlive
//! that uses a terminal.

use chrono::{DateTime, Utc};
use kernel::secret::ShownOnce;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the protocol in the handshake.
pub const SSH_PROTOCOL: &str = "gpuaas.ssh.v1";
/// The largest message of a client.
pub const LARGEST_SSH_MESSAGE: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SshClientMessage {
    /// The client sends no more.
    Eof,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SshServerMessage {
    /// The SSH server of the machine has accepted the connection.
    Ready,
    /// The machine sends no more.
    Eof,
    SessionError {
        code: &'static str,
        message: String,
        /// The same may work in a moment, with a new token.
        retryable: bool,
    },
}

impl SshServerMessage {
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A token, shown once.
#[derive(Serialize, JsonSchema)]
pub struct SshTokenIssued {
    /// As bearer, or for the header `Sec-WebSocket-Protocol` (`gpuaas.ssh.v1, token.<token>`). It works once.
    pub token: ShownOnce,
    pub expires_at: DateTime<Utc>,
    /// Where the WebSocket is, on this server.
    pub url: String,
    /// The account on the machine.
    pub username: String,
    /// The public keys of the machine's SSH server: a client accepts no others.
    pub host_keys: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_clients_were_told() {
        assert_eq!(
            serde_json::from_str::<SshClientMessage>(r#"{"type":"eof"}"#).ok(),
            Some(SshClientMessage::Eof)
        );
        assert!(serde_json::from_str::<SshClientMessage>(r#"{"type":"resize"}"#).is_err());
        assert_eq!(SshServerMessage::Ready.text(), r#"{"type":"ready"}"#);
        assert_eq!(SshServerMessage::Eof.text(), r#"{"type":"eof"}"#);
        let error = SshServerMessage::SessionError { code: "x", message: "y".to_owned(), retryable: true };
        assert_eq!(error.text(), r#"{"type":"session_error","code":"x","message":"y","retryable":true}"#);
    }
}
