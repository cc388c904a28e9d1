//! Refunds: where money goes back to.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Problem,
    ids::{OrgId, PaymentId, PostingId, RefundId, UserId},
    policy::Setting,
};
use lifecycle::Named as _;
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

lifecycle::named_enum! {
    /// Where a refund goes. Earlier releases also made refunds that became credit.
    RefundDestination = "refund destination" { Card = "card", Credit = "credit" }
}

lifecycle::named_enum! {
    /// Who made a refund: an operator here, or somebody at the provider.
    RefundSource = "refund source" { Operator = "operator", Provider = "provider" }
}

/// Unused money goes to the card for so many days after the payment. After that it stays in the balance: a refund moves
/// money and never makes any.
pub fn check_window(payment: &Payment, now: DateTime<Utc>, window_days: Setting) -> Result<(), Problem> {
    let window = TimeDelta::try_days(window_days.get()).unwrap_or(TimeDelta::MAX);
    if now - payment.paid_at <= window {
        return Ok(());
    }
    let text = format!(
        "The payment is older than {} days: its unused part stays in the balance and cannot be refunded to the card.",
        window_days.get()
    );
    Err(Problem::new(Code::Unprocessable, text)
        .detail("reason", "refund_window_over")
        .detail("window_days", window_days.get())
        .suggest("To credit used money, create an adjustment: `gpuaas platform billing adjustments create`."))
}

/// What an operator found out about a refund of which it was not known whether the provider sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The provider sent it and calls it this.
    Sent { provider_refund: String },
    /// The provider never sent it: the balance has it back.
    NotSent,
}

/// Whether `by` may settle the refund so. Only what nobody will send or hear of any more is settled by hand, and the balance
/// gets nothing back on the word of the one who took it out.
pub fn check_settle(
    refund: &Refund,
    provider_is_set_up: bool,
    leased_seconds: Option<u64>,
    settlement: &Settlement,
    by: UserId,
) -> Result<(), Problem> {
    if refund.state != RefundState::Pending {
        let text = format!("The refund is already {}.", refund.state);
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", refund.state.name()));
    }
    if refund.provider_refund.is_some() || (refund.unknown_since.is_none() && provider_is_set_up) {
        let text = "The refund is still in progress; only a refund with an unknown result can be settled.";
        return Err(Problem::new(Code::InvalidTransition, text)
            .detail("state", refund.state.name())
            .suggest("Wait until the provider responds, or until the refund has `unknown_since`."));
    }
    if let Some(seconds) = leased_seconds {
        let text = "A worker may be sending the refund to the provider.";
        let then = format!(
            "Wait until the attempt has ended, at most {seconds} seconds; then check the provider and \
             `gpuaas platform billing refunds show {}`, and settle it if it is still unknown.",
            refund.id
        );
        return Err(Problem::new(Code::InvalidTransition, text)
            .detail("reason", "attempt_in_progress")
            .detail("wait_seconds", seconds)
            .retry_after(seconds)
            .suggest(then));
    }
    if *settlement == Settlement::NotSent && refund.requested_by == Some(by) {
        let text = "You requested this refund; another administrator must confirm that it was not sent.";
        return Err(Problem::new(Code::InsufficientPermissions, text)
            .detail("reason", "second_approver_required")
            .suggest("Ask another platform administrator to check the provider and settle it."));
    }
    Ok(())
}

/// Nobody gets back more than was paid, and what is disputed or has gone back is not there to give.
pub fn check_amount(payment: &Payment, amount: i64) -> Result<(), Problem> {
    let refundable = payment.refundable();
    if (1..=refundable).contains(&amount) {
        return Ok(());
    }
    let text = format!(
        "{refundable} minor units of {} of this payment can still be refunded; {amount} is more.",
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
    pub destination: RefundDestination,
    pub source: RefundSource,
    pub reason: String,
    pub state: RefundState,
    pub state_reason: String,
    /// The provider's own id of it.
    pub provider_refund: Option<String>,
    /// The entry of the ledger that took it from the balance.
    pub posting_id: PostingId,
    pub requested_by: Option<UserId>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// Since when it is not known whether the provider sent it; an operator has to settle it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<DateTime<Utc>>,
    #[serde(skip)]
    pub attempts: i32,
    #[serde(skip)]
    pub first_attempt_at: Option<DateTime<Utc>>,
    #[serde(skip)]
    pub correlation_id: uuid::Uuid,
}
