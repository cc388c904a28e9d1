//! Disputes and their states.

use chrono::{DateTime, Utc};
use kernel::ids::{DisputeId, OrgId, PaymentId, PostingId};
use schemars::JsonSchema;
use serde::Serialize;

pub use events::payments::DisputeState;

lifecycle::lifecycle! {
    DisputeLifecycle = "dispute", initial Open;
    states DisputeState;
    events DisputeEvent { Win = "win", Lose = "lose" }
    Open on Win => Won;
    Open on Lose => Lost;
}

/// What the provider's word for it means to us. An inquiry that was closed took nothing, and what the merchant gave back
/// by a refund is in that refund.
pub fn provider_status_read(status: &str) -> DisputeState {
    match status {
        "won" | "warning_closed" | "prevented" | "charge_refunded" => DisputeState::Won,
        "lost" => DisputeState::Lost,
        _ => DisputeState::Open,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Dispute {
    pub id: DisputeId,
    pub org_id: OrgId,
    pub payment_id: PaymentId,
    /// The provider's own id of it.
    pub provider_dispute: String,
    pub amount_minor: i64,
    pub currency: String,
    pub reason: String,
    pub state: DisputeState,
    /// The entry of the ledger that froze the amount.
    pub posting_id: PostingId,
    pub closed_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
