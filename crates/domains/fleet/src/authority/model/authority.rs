//! Generations of the certificate authority.

use chrono::{DateTime, Utc};
use kernel::{hex::Hex, ids::AuthorityId};
use schemars::JsonSchema;
use serde::Serialize;

pub use events::fleet::AuthorityState;

lifecycle::lifecycle! {
    /// Nodes believe the roots of staged, active and grace generations; certificates come from the active one.
    AuthorityLifecycle = "authority", initial Staged;
    states AuthorityState;
    events AuthorityEvent {
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Authority {
    pub id: AuthorityId,
    pub state: AuthorityState,
    /// False when its keys do not open under the master key: somebody else wrote it, and it is not believed.
    pub genuine: bool,
    /// In PEM.
    pub root_certificate: String,
    pub issuing_certificate: String,
    /// What joining nodes pin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hex")]
    pub root_sha256: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hex")]
    pub issuing_sha256: Option<Hex>,
    /// When the issuing certificate ends.
    pub not_after: DateTime<Utc>,
    /// Enrolled nodes that believe its root.
    pub nodes_confirmed: i64,
    pub nodes_total: i64,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
