//! What a node last said of itself.

use chrono::{DateTime, Utc};
use kernel::ids::AuthorityId;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "NodeContact")]
pub struct Contact {
    pub first_seen_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    pub agent_version: String,
    /// The version of the node contract that the agent speaks.
    pub contract: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expires_at: Option<DateTime<Utc>>,
    pub applied_version: i64,
    pub keyset_serial: i64,
    pub authority_ids: Vec<AuthorityId>,
    /// The node's clock minus the control plane's.
    pub clock_offset_ms: i64,
    pub boot_id: String,
    pub metrics: Value,
    pub inventory: Value,
}

lifecycle::named_enum! {
    ContactState = "contact state" { Never = "never", Current = "current", Late = "late" }
}

/// Whether a node is heard of as often as it should be.
pub fn contact_state(last_seen: Option<DateTime<Utc>>, late_before: DateTime<Utc>) -> ContactState {
    match last_seen {
        None => ContactState::Never,
        Some(at) if at < late_before => ContactState::Late,
        Some(_) => ContactState::Current,
    }
}
