//! How an attachment ends, and what its client is told of that.

use axum::extract::ws::close_code;

use super::tape::{TAMPERED, UNAVAILABLE, Unavailable};
use crate::model::message::ServerMessage;

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
pub struct Farewell {
    pub message: Option<ServerMessage>,
    pub code: u16,
}

pub fn protocol_error(text: &str) -> Option<Farewell> {
    let message =
        ServerMessage::SessionError { code: "protocol", message: text.to_owned(), retryable: false };
    Some(Farewell { message: Some(message), code: close_code::PROTOCOL })
}

/// A node that does not keep to the protocol. A client that came again would find the same one.
pub fn node_protocol_error() -> Option<Farewell> {
    let message = ServerMessage::SessionError {
        code: "node_protocol_error",
        message: "the node sent what no node sends, and the terminal was broken off; tell the operator of the installation"
            .to_owned(),
        retryable: false,
    };
    Some(Farewell { message: Some(message), code: close_code::POLICY })
}

pub fn lost() -> Option<Farewell> {
    let message = ServerMessage::SessionError {
        code: "tunnel_lost",
        message: "the connection to the node is lost".to_owned(),
        retryable: true,
    };
    Some(Farewell { message: Some(message), code: close_code::AGAIN })
}

pub fn unavailable(error: Unavailable) -> Option<Farewell> {
    let (code, text, retryable, close) = match error {
        Unavailable::NotStored => ("recording_unavailable", UNAVAILABLE, true, close_code::AGAIN),
        Unavailable::Tampered => ("recording_tampered", TAMPERED, false, close_code::POLICY),
    };
    let message = Some(ServerMessage::SessionError { code, message: text.to_owned(), retryable });
    Some(Farewell { message, code: close })
}
