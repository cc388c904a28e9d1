//! What discovery found, and what a probe proved.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId, ValidationId};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeTopology {
    pub node_id: NodeId,
    pub task_id: TaskId,
    /// As the agent reported it.
    pub topology: Value,
    pub discovered_at: DateTime<Utc>,
}

/// Evidence of the gate before a node serves tenants.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NodeValidation")]
pub struct Validation {
    pub id: ValidationId,
    pub node_id: NodeId,
    pub task_id: TaskId,
    pub profile: String,
    pub passed: bool,
    /// The report, or how the task ended when there is none.
    pub evidence: Value,
    pub created_at: DateTime<Utc>,
}
