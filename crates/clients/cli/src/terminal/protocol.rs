//! The messages of `gpuaas.terminal.v1`: binary messages are bytes of the terminal, text messages are JSON with a `type`.

use std::time::Duration;

use kernel::ids::TerminalSessionId;
use serde::{Deserialize, Serialize};

pub const SUBPROTOCOL: &str = "gpuaas.terminal.v1";

/// The largest binary message that the server takes.
pub const MESSAGE_BYTES: usize = 32 * 1024;
/// Typed bytes that may be on their way without an `input_ack`.
pub const INPUT_WINDOW_BYTES: u64 = 64 * 1024;
/// An `ack` is due when this many bytes were written since the last one. The server asks for one every 32 KiB.
pub const ACK_BYTES: u64 = 16 * 1024;
/// An `ack` is due so long after output. The server asks for one within 100 ms.
pub const ACK_DELAY: Duration = Duration::from_millis(50);

/// Close code: the token was not accepted.
pub const TOKEN_REFUSED: u16 = 4401;
/// Code of `session_error`: another window types in the session.
pub const WRITER_ATTACHED: &str = "writer_attached";

/// What an attachment may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    Write,
    /// Type, and end the attachment that types now.
    TakeOver,
    /// See the output; type nothing.
    Watch,
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first message. `sequence` is the number of output bytes of the session that are on the screen already.
    Attach {
        sequence: u64,
        #[serde(flatten)]
        size: Size,
    },
    Resize(Size),
    /// Output bytes of the session that were written to the local terminal.
    Ack {
        sequence: u64,
    },
    /// This window leaves on purpose; the program goes on.
    Detach,
    Ping,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// `sequence` is the number of the next output byte.
    SessionReady {
        session_id: TerminalSessionId,
        sequence: u64,
        access: Access,
    },
    /// Output goes on at this byte: what is between was not kept for a window that is too slow.
    Skipped {
        sequence: u64,
    },
    /// Input bytes that were taken in this attachment, from its beginning.
    InputAck {
        bytes: u64,
    },
    Notice {
        message: String,
    },
    SessionError {
        code: String,
        message: String,
        retryable: bool,
    },
    SessionClosed {
        reason: String,
        #[serde(default)]
        exit_status: Option<i64>,
    },
    Pong,
    /// Of a later server.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "term_0193b3a000007000800000000000c0de";

    #[test]
    fn messages_to_the_server_have_the_names_of_the_protocol() {
        let size = Size { columns: 80, rows: 24 };
        for (message, expected) in [
            (
                ClientMessage::Attach { sequence: 7, size },
                json!({ "type": "attach", "sequence": 7, "columns": 80, "rows": 24 }),
            ),
            (ClientMessage::Resize(size), json!({ "type": "resize", "columns": 80, "rows": 24 })),
            (ClientMessage::Ack { sequence: 9 }, json!({ "type": "ack", "sequence": 9 })),
            (ClientMessage::Detach, json!({ "type": "detach" })),
            (ClientMessage::Ping, json!({ "type": "ping" })),
        ] {
            assert_eq!(serde_json::to_value(message).unwrap(), expected);
        }
    }

    #[test]
    fn messages_of_the_server_are_read_and_those_of_a_later_one_are_not_errors() {
        let read = |value: Value| serde_json::from_value::<ServerMessage>(value).unwrap();
        let ready =
            json!({ "type": "session_ready", "session_id": ID, "sequence": 3, "access": "take_over" });
        assert_eq!(
            read(ready),
            ServerMessage::SessionReady {
                session_id: ID.parse().unwrap(),
                sequence: 3,
                access: Access::TakeOver
            }
        );
        assert_eq!(
            read(json!({ "type": "session_closed", "reason": "exited", "exit_status": 3 })),
            ServerMessage::SessionClosed { reason: "exited".to_owned(), exit_status: Some(3) }
        );
        assert_eq!(
            read(json!({ "type": "session_closed", "reason": "idle" })),
            ServerMessage::SessionClosed { reason: "idle".to_owned(), exit_status: None }
        );
        assert_eq!(
            read(
                json!({ "type": "session_error", "code": "tunnel_lost", "message": "m", "retryable": true })
            ),
            ServerMessage::SessionError {
                code: "tunnel_lost".to_owned(),
                message: "m".to_owned(),
                retryable: true
            }
        );
        assert_eq!(read(json!({ "type": "input_ack", "bytes": 5 })), ServerMessage::InputAck { bytes: 5 });
        assert_eq!(read(json!({ "type": "skipped", "sequence": 8 })), ServerMessage::Skipped { sequence: 8 });
        assert_eq!(read(json!({ "type": "pong" })), ServerMessage::Pong);
        assert_eq!(read(json!({ "type": "weather", "sun": true })), ServerMessage::Unknown);
    }
}
