//! Disputes and their states.

use chrono::{DateTime, Utc};
use kernel::ids::{DisputeId, OrgId, PaymentId, PostingId};
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::lifecycle! {
    DisputeLifecycle = "dispute", initial Open;
    states DisputeState { Open = "open", Won = "won", Lost = "lost" }
    events DisputeEvent { Win = "win", Lose = "lose" }
    Open on Win => Won;
    Open on Lose => Lost;
}

impl DisputeState {
    /// What the provider's word for it means to us. An inquiry that was closed took nothing, and what the merchant
    /// gave back by a refund is in that refund.
    pub fn of(status: &str) -> Self {
        match status {
            "won" | "warning_closed" | "prevented" | "charge_refunded" => Self::Won,
            "lost" => Self::Lost,
            _ => Self::Open,
        }
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
