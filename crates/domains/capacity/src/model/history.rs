//! What happened to an allocation, as its project sees it.

use chrono::{DateTime, Utc};
use kernel::ids::AllocationId;
use schemars::JsonSchema;
use serde::Serialize;

use super::allocation::AllocationState;

lifecycle::named_enum! {
    HistoryKind = "kind of allocation event" as "AllocationEventKind" {
        State = "state",
        Phase = "phase",
        Access = "access",
        Operation = "operation",
    }
}

lifecycle::named_enum! {
    /// A person, a machine of the project, or the service itself.
    HistoryActor = "actor of an allocation event" {
        User = "user",
        ServiceAccount = "service_account",
        System = "system",
    }
}

/// A change of state, a phase of the work on its machine, a change of access, or an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationEvent")]
pub struct HistoryEntry {
    /// Grows with each event of an allocation; what `after` and `Last-Event-ID` take.
    pub seq: i64,
    pub allocation_id: AllocationId,
    pub at: DateTime<Utc>,
    pub kind: HistoryKind,
    /// What led to a new state; or the name of the phase or operation.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_state: Option<AllocationState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_state: Option<AllocationState>,
    pub reason: String,
    /// How long the state that ended lasted, or the phase took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    pub actor_kind: HistoryActor,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllocationHistory")]
pub struct History {
    pub items: Vec<HistoryEntry>,
    /// What to give as `after` for what comes later.
    pub next_after: i64,
}
