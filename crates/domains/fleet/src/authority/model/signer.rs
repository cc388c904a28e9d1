//! Keys that sign work.

use chrono::{DateTime, Utc};
use kernel::hex::Hex;
use schemars::JsonSchema;
use serde::Serialize;

pub use events::fleet::SignerState;

lifecycle::lifecycle! {
    /// Nodes believe staged, active and grace signers; new work is signed by the active one.
    SignerLifecycle = "signer", initial Staged;
    states SignerState;
    events SignerEvent {
        Activate = "activate", Supersede = "supersede", Retire = "retire", Revoke = "revoke",
    }
    Staged on Activate => Active;
    Staged on Revoke => Revoked;
    Active on Supersede => Grace;
    Active on Revoke => Revoked;
    Grace on Retire => Retired;
    Grace on Revoke => Revoked;
    Retired on Revoke => Revoked;
}

/// Whether nodes believe what it signs.
pub const fn signer_is_believed(state: SignerState) -> bool {
    matches!(state, SignerState::Staged | SignerState::Active | SignerState::Grace)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Signer {
    pub signer_version: u32,
    pub state: SignerState,
    /// False when the signed list says otherwise: somebody else wrote the row, and nobody believes it.
    pub genuine: bool,
    /// Ed25519.
    pub public_key: Hex,
    /// The list that its state began with; nothing when that was long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub keyset_serial: Option<u64>,
    /// Enrolled nodes that have taken over that list.
    pub nodes_confirmed: i64,
    pub nodes_total: i64,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
