//! Certificates that were given to nodes.

use chrono::{DateTime, Utc};
use kernel::{
    hex::Hex,
    ids::{AuthorityId, NodeId},
};
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::named_enum! {
    CertificateState = "certificate state" { Valid = "valid", Expired = "expired", Revoked = "revoked" }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodeCertificate")]
pub struct Certificate {
    pub serial: String,
    pub node_id: NodeId,
    pub authority_id: AuthorityId,
    /// SHA-256 of the certificate.
    pub fingerprint: Hex,
    pub state: CertificateState,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_at: DateTime<Utc>,
}
