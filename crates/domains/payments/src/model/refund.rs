//! Refunds: where money goes back to.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Problem,
    ids::{OrgId, PaymentId, PostingId, RefundId, UserId},
    policy::Setting,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::topup::Payment;

lifecycle::lifecycle! {
    /// A bank may send back what was thought to have arrived.
    RefundLifecycle = "refund", initial Pending;
    states RefundState { Pending = "pending", Succeeded = "succeeded", Failed = "failed" }
    events RefundEvent { Succeed = "succeed", Fail = "fail" }
    Pending on Succeed => Succeeded;
    Pending on Fail => Failed;
    Succeeded on Fail => Failed;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Card,
    Credit,
}

impl Destination {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Credit => "credit",
        }
    }

    /// To the card for so many days after the payment, as credit from then on.
    pub fn of(payment: &Payment, now: DateTime<Utc>, window_days: Setting) -> Self {
        let window = TimeDelta::try_days(window_days.get()).unwrap_or(TimeDelta::MAX);
        if now - payment.paid_at <= window { Self::Card } else { Self::Credit }
    }
}

/// Nobody gets back more than was paid, and what is disputed or has gone back is not there to give.
pub fn check_amount(payment: &Payment, amount: i64) -> Result<(), Problem> {
    let refundable = payment.refundable();
    if (1..=refundable).contains(&amount) {
        return Ok(());
    }
    let text = format!(
        "{refundable} of this payment can still go back, in the smallest unit of {}; {amount} cannot.",
        payment.currency
    );
    Err(Problem::new(Code::Unprocessable, text)
        .detail("refundable_minor", refundable)
        .detail("refunded_minor", payment.refunded_minor)
        .detail("disputed_minor", payment.disputed_minor))
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Refund {
    pub id: RefundId,
    pub org_id: OrgId,
    pub payment_id: PaymentId,
    pub amount_minor: i64,
    pub currency: String,
    /// `card` or `credit`.
    pub destination: String,
    /// `operator`, or `provider` when it was made there.
    pub source: String,
    pub reason: String,
    /// `pending`, `succeeded` or `failed`.
    pub state: String,
    pub state_reason: String,
    /// The provider's own id of it.
    pub provider_refund: Option<String>,
    /// The entry of the ledger that took it from the balance, or added the credit.
    pub posting_id: PostingId,
    pub requested_by: Option<UserId>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    #[serde(skip)]
    pub attempts: i32,
    #[serde(skip)]
    pub correlation_id: uuid::Uuid,
}

impl Refund {
    pub fn state(&self) -> Option<RefundState> {
        RefundState::parse(&self.state)
    }
}
