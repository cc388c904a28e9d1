//! Logs of nodes, as operators follow them.
//!
//! A client of `/ws/node-logs/{node_id}` only listens: recent lines, then `live`, then lines as the node logs them. Where the
//! node dropped lines because the client was too slow, `dropped` stands in their place.

use chrono::{DateTime, Utc};
use kernel::secret::ShownOnce;
use node_proto::log_stream::StreamLine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the protocol in the handshake.
pub const LOG_PROTOCOL: &str = "gpuaas.node-logs.v1";
/// Clients say nothing; a larger message ends the connection.
pub const LARGEST_CLIENT_MESSAGE: usize = 1024;

/// Which log of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "NodeLogSource")]
pub enum LogSource {
    /// What the agent logs.
    #[default]
    Agent,
    /// The log of the machine's kernel.
    Kernel,
}

impl LogSource {
    /// As the node knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => node_proto::log_stream::AGENT,
            Self::Kernel => node_proto::log_stream::KERNEL,
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::Agent, Self::Kernel].into_iter().find(|source| source.name() == name)
    }
}

/// A token, shown once.
#[derive(Serialize, JsonSchema)]
pub struct NodeLogTokenIssued {
    /// For the header `Sec-WebSocket-Protocol` (`gpuaas.node-logs.v1, token.<token>`) or as bearer. It works once.
    pub token: ShownOnce,
    pub expires_at: DateTime<Utc>,
    /// Where the WebSocket is, on this server.
    pub url: String,
}

/// What a client is told, as JSON in text messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogMessage {
    /// Oldest first.
    Lines { lines: Vec<StreamLine> },
    /// All lines that the node had kept were sent: those after this one are new.
    Live,
    /// So many lines are missing here: the client was too slow.
    Dropped { lines: u64 },
    LogError {
        code: &'static str,
        message: String,
        /// The same may work in a moment, with a new token.
        retryable: bool,
    },
}

impl LogMessage {
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_clients_were_told() {
        assert_eq!(LogMessage::Live.text(), r#"{"type":"live"}"#);
        assert_eq!(LogMessage::Dropped { lines: 7 }.text(), r#"{"type":"dropped","lines":7}"#);
        let error = LogMessage::LogError { code: "x", message: "y".to_owned(), retryable: true };
        assert_eq!(error.text(), r#"{"type":"log_error","code":"x","message":"y","retryable":true}"#);
    }

    #[test]
    fn a_source_is_known_by_the_name_that_nodes_use() {
        for source in [LogSource::Agent, LogSource::Kernel] {
            assert_eq!(LogSource::parse(source.name()), Some(source));
        }
        assert_eq!(LogSource::parse("/etc/shadow"), None);
    }
}
