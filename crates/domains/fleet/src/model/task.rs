//! A task's row: where signed work stands.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId};
use node_proto::contract::{Ending, Phase};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

lifecycle::lifecycle! {
    /// A task that was handed out comes back to the queue only when the node says that it never started it.
    TaskLifecycle = "task", initial Queued;
    states TaskState {
        Queued = "queued", Dispatched = "dispatched", Running = "running", Succeeded = "succeeded",
        Failed = "failed", Expired = "expired", Cancelled = "cancelled",
    }
    events TaskEvent {
        Dispatch = "dispatch", NeverStarted = "never_started", Start = "start", Succeed = "succeed", Fail = "fail",
        Reject = "reject", Expire = "expire", Cancel = "cancel",
    }
    Queued on Dispatch => Dispatched;
    Queued on Reject => Failed;
    Dispatched on Reject => Failed;
    Dispatched on NeverStarted => Queued;
    Dispatched on Start => Running;
    Dispatched on Succeed => Succeeded;
    Dispatched on Fail => Failed;
    Running on Succeed => Succeeded;
    Running on Fail => Failed;
    Queued on Expire => Expired;
    Dispatched on Expire => Expired;
    Running on Expire => Expired;
    Queued on Cancel => Cancelled;
    Dispatched on Cancel => Cancelled;
    Running on Cancel => Cancelled;
}

/// As operators see it. The parameters are shown from the signed bytes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeTask")]
pub struct TaskView {
    pub id: TaskId,
    pub node_id: NodeId,
    pub task_type: String,
    pub state: TaskState,
    pub params: Value,
    pub signer_version: i32,
    pub correlation_id: uuid::Uuid,
    pub issued_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub deliveries: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    pub phases: Vec<Phase>,
    /// How it ended, as the node told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Ending>,
    /// What the node told after the task was over already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_outcome: Option<Ending>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
