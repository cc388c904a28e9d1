//! What agents say, as operators read it.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeLogLine")]
pub struct LogEntry {
    /// Grows with every line of a node; lines of other nodes may lie between.
    pub seq: i64,
    pub at: DateTime<Utc>,
    #[schemars(extend("enum" = ["error", "warn", "info", "debug"]))]
    pub level: String,
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
