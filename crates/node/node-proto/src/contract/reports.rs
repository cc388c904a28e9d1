//! What nodes report of themselves, and what they log.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    pub agent_version: String,
    pub certificate_expires_at: DateTime<Utc>,
    pub applied_version: u64,
    pub boot_id: String,
    #[serde(default)]
    pub inventory: Inventory,
    #[serde(default)]
    pub findings: Vec<Finding>,
    #[serde(default)]
    pub metrics: NodeMetrics,
    /// Since 1.1: the trust that the node has taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyset_serial: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_ids: Option<Vec<kernel::ids::AuthorityId>>,
    /// Since 1.1: node's clock minus control plane's, as the node estimates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
}

/// What is in use on the node, as the node sees it; compared with what should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inventory {
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub machines: Vec<String>,
    #[serde(default)]
    pub drained: bool,
    /// Since 1.2: terminal sessions that run or whose output is kept, and for some minutes those whose output was forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_sessions: Option<Vec<TerminalSessionReport>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalSessionReport {
    pub session_id: kernel::ids::TerminalSessionId,
    /// Not given while it runs or its output is kept: somebody may come for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<TerminalEndReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TerminalEndReason {
    Exited,
    Expired,
    Idle,
    Ended,
    NodeStopping,
    /// One that a later version has.
    #[serde(other)]
    Other,
}

/// Something about the node's health. Reported as long as it lasts, or once for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// `xid.79`, `dcgm.thermal`, `node.disk_full`: lower case, parts separated by dots.
    pub code: String,
    /// The PCI address of a GPU, or `node`.
    pub subject: String,
    pub message: String,
    pub observed_at: DateTime<Utc>,
    #[serde(default)]
    pub evidence: Value,
}

pub const FINDINGS_PER_HEARTBEAT: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeMetrics {
    #[serde(default)]
    pub load_1m: f64,
    #[serde(default)]
    pub memory_used_mib: u64,
    #[serde(default)]
    pub state_disk_free_mib: u64,
    #[serde(default)]
    pub tasks_running: u32,
    #[serde(default)]
    pub gpus: Vec<GpuMetrics>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuMetrics {
    pub pci_address: String,
    pub utilization_percent: u32,
    pub memory_used_mib: u64,
    pub temperature_celsius: i32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatAnswer {
    pub heartbeat_seconds: u32,
    pub desired_version: u64,
    /// Since 1.1: when it is not what the node has, it asks for the trust in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyset_serial: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_ids: Option<Vec<kernel::ids::AuthorityId>>,
    /// Since 1.1: the certificate that was shown is from before the end of a tenancy; the node makes a new key and
    /// renews at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_now: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    pub at: DateTime<Utc>,
    pub level: LogLevel,
    pub source: String,
    pub message: String,
}

pub const LOG_LINES_PER_BATCH: usize = 500;
pub const LOG_LINE_BYTES: usize = 2048;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogBatch {
    pub lines: Vec<LogLine>,
    /// Lines that the node dropped because its buffer was full.
    #[serde(default)]
    pub dropped: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogsTaken {
    pub lines: u32,
}
