//! Top-ups and payments, and their states.

use chrono::{DateTime, Utc};
use kernel::{
    Problem,
    ids::{OrgId, PaymentId, TopupId},
};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

lifecycle::lifecycle! {
    /// Money that arrives is credited, whatever was thought of the checkout before.
    TopupLifecycle = "topup", initial Created;
    states TopupState { Created = "created", Open = "open", Paid = "paid", Expired = "expired", Failed = "failed" }
    events TopupEvent { Opened = "opened", Pay = "pay", Expire = "expire", Fail = "fail" }
    Created on Opened => Open;
    Created on Pay => Paid;
    Created on Expire => Expired;
    Created on Fail => Failed;
    Open on Pay => Paid;
    Open on Expire => Expired;
    Open on Fail => Failed;
    Expired on Pay => Paid;
    Failed on Pay => Paid;
}

/// A checkout: money that is on its way.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Topup {
    pub id: TopupId,
    pub org_id: OrgId,
    pub amount_minor: i64,
    pub currency: String,
    pub state: TopupState,
    pub state_reason: String,
    /// Where to pay; there from `open` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Somebody wants it to end without being paid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    #[serde(skip)]
    pub provider: String,
    #[serde(skip)]
    pub session_id: Option<String>,
    #[serde(skip)]
    pub attempts: i32,
    #[serde(skip)]
    pub correlation_id: Uuid,
}

/// What became of a checkout, without anything of whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckoutOutcome {
    pub amount_minor: i64,
    pub currency: String,
    pub state: TopupState,
}

impl Topup {
    /// Nothing more is to be waited for: it can be paid, or it is over.
    pub fn is_settled(&self) -> bool {
        self.state != TopupState::Created
    }
}

/// Money that arrived.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Payment {
    pub id: PaymentId,
    pub org_id: OrgId,
    pub topup_id: TopupId,
    pub provider: String,
    /// The provider's own id of it.
    pub intent: String,
    pub amount_minor: i64,
    pub currency: String,
    /// What went back or is about to.
    pub refunded_minor: i64,
    /// What is frozen or lost by disputes.
    pub disputed_minor: i64,
    pub paid_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
}

impl Payment {
    /// What could still go back.
    pub const fn refundable(&self) -> i64 {
        let left = self.amount_minor - self.refunded_minor - self.disputed_minor;
        if left > 0 { left } else { 0 }
    }
}

/// Whether somebody may pay in this much.
pub fn check_amount(amount: i64, minimum: i64, maximum: i64, currency: &str) -> Result<(), Problem> {
    if amount >= minimum && amount <= maximum {
        return Ok(());
    }
    let text = format!(
        "A top-up must be between {minimum} and {maximum} minor units of {currency}; {amount} is not."
    );
    Err(Problem::new(kernel::Code::Unprocessable, text)
        .detail("minimum_minor", minimum)
        .detail("maximum_minor", maximum)
        .detail("currency", currency)
        .suggest("Choose an amount within the limits, or ask an operator to change them."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_outside_of_the_policy_are_refused_with_both_limits() {
        assert!(
            check_amount(1000, 1000, 2000, "USD").is_ok() && check_amount(2000, 1000, 2000, "USD").is_ok()
        );
        for amount in [i64::MIN, -1, 0, 999, 2001, i64::MAX] {
            let problem = check_amount(amount, 1000, 2000, "USD").unwrap_err();
            assert_eq!(problem.code.status(), 422);
            assert_eq!(
                (&problem.details["minimum_minor"], &problem.details["maximum_minor"]),
                (&1000.into(), &2000.into())
            );
        }
    }
}
