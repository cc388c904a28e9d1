//! Whose machines are on a node: what stands in the way of taking it out of service.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, ProjectId};
use schemars::JsonSchema;
use serde::Serialize;

/// Named one by one; of the rest, only the number is given.
pub const MOST_NAMED: i64 = 20;

lifecycle::named_enum! {
    /// Of an allocation that has not ended: one that has is on no node.
    OccupantState = "state of an occupant" {
        Requested = "requested",
        Provisioning = "provisioning",
        Active = "active",
        Releasing = "releasing",
        ReleaseFailed = "release_failed",
    }
}

/// An allocation that is on a node, and whom to ask about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeOccupant {
    pub allocation_id: AllocationId,
    pub allocation_name: String,
    pub state: OccupantState,
    /// Since when it is in this state.
    pub since: DateTime<Utc>,
    pub org_id: OrgId,
    pub org_name: String,
    pub project_id: ProjectId,
    pub project_name: String,
    /// The e-mail address of the person who launched it, or the name of the service account.
    pub owner: String,
}

/// The allocations on a node, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeOccupants {
    /// How many there are; the list may be shorter.
    pub total: i64,
    pub items: Vec<NodeOccupant>,
}
