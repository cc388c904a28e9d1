//! What a client and a gateway say to each other besides bytes: JSON in text messages of the WebSocket.
//!
//! Binary messages are bytes of the terminal. The client begins with `attach`. It acknowledges output as it has shown it: a
//! gateway sends at most a ring's worth ahead. It keeps at most [`INPUT_WINDOW`] bytes of input on their way, counted by
//! `input_ack`: a program that does not read never keeps acknowledgements from getting through.

use kernel::ids::TerminalSessionId;
use serde::{Deserialize, Serialize};

use super::session::Access;

/// The name of the protocol in the handshake.
pub const PROTOCOL: &str = "gpuaas.terminal.v1";
/// Browsers cannot set headers: the token follows this in the list of protocols.
pub const TOKEN_PREFIX: &str = "token.";
/// Input that a client may have on its way.
pub const INPUT_WINDOW: usize = 64 * 1024;
/// The largest message of a client.
pub const LARGEST_MESSAGE: usize = 32 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientMessage {
    Attach {
        /// How many bytes of the session's output the client has.
        #[serde(default)]
        sequence: u64,
        columns: u16,
        rows: u16,
    },
    Resize {
        columns: u16,
        rows: u16,
    },
    Ack {
        sequence: u64,
    },
    /// Leaves on purpose: the program goes on.
    Detach,
    Ping,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    SessionReady {
        session_id: TerminalSessionId,
        /// The number of the byte that comes next. More than the client has: what is between was not kept.
        sequence: u64,
        access: Access,
    },
    /// Output goes on at this byte: what is between was not kept.
    Skipped {
        sequence: u64,
    },
    InputAck {
        bytes: u64,
    },
    SessionError {
        code: &'static str,
        message: String,
        /// The same may work in a moment, with a new token.
        retryable: bool,
    },
    SessionClosed {
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
    },
    Pong,
}

impl ServerMessage {
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_what_clients_were_told() {
        let read = |value: serde_json::Value| serde_json::from_value::<ClientMessage>(value).ok();
        assert_eq!(
            read(json!({ "type": "attach", "columns": 80, "rows": 24 })),
            Some(ClientMessage::Attach { sequence: 0, columns: 80, rows: 24 })
        );
        assert_eq!(read(json!({ "type": "ack", "sequence": 7 })), Some(ClientMessage::Ack { sequence: 7 }));
        assert_eq!(read(json!({ "type": "detach" })), Some(ClientMessage::Detach));
        assert_eq!(read(json!({ "type": "run", "command": "id" })), None);
        let closed = ServerMessage::SessionClosed { reason: "exited", exit_status: Some(3) };
        assert_eq!(closed.text(), r#"{"type":"session_closed","reason":"exited","exit_status":3}"#);
        let error = ServerMessage::SessionError { code: "x", message: "y".to_owned(), retryable: true };
        assert_eq!(error.text(), r#"{"type":"session_error","code":"x","message":"y","retryable":true}"#);
    }
}
