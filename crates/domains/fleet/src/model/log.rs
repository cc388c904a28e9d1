//! What agents say, as operators read it.

use chrono::{DateTime, Utc};
use node_proto::contract;
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::named_enum! {
    LogLevel = "log level" { Error = "error", Warn = "warn", Info = "info", Debug = "debug" }
}

impl From<contract::LogLevel> for LogLevel {
    fn from(told: contract::LogLevel) -> Self {
        match told {
            contract::LogLevel::Error => Self::Error,
            contract::LogLevel::Warn => Self::Warn,
            contract::LogLevel::Info => Self::Info,
            contract::LogLevel::Debug => Self::Debug,
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeLogLine")]
pub struct LogEntry {
    /// Grows with every line of a node; lines of other nodes may lie between.
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub level: LogLevel,
    pub source: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeLogTail")]
pub struct LogTail {
    /// Oldest first.
    pub items: Vec<LogEntry>,
    /// Give it as `after` to get what came later.
    pub next_after: i64,
}
