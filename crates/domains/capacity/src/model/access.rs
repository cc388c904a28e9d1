//! Who may log in.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, ServiceAccountId, UserId};
use schemars::JsonSchema;
use serde::Serialize;

/// Somebody who may log in besides the creator, with their own keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AccessGrant")]
pub struct Grant {
    pub user_id: UserId,
    pub granted_by: UserId,
    pub granted_at: DateTime<Utc>,
}

/// Whose machines are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachinesOf {
    Everybody,
    /// Who made the allocation, or has a grant.
    Person(UserId),
    /// What it launched.
    ServiceAccount(ServiceAccountId),
    Node(NodeId),
}
