//! Use cases: load, decide, write, emit.

pub mod checkouts;
pub mod disputes;
pub mod intake;
pub mod messages;
pub mod processing;
pub mod reconcile;
pub mod refund_settlement;
pub mod refunds;
pub mod sending;
pub mod settle;
pub mod topups;

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{CorrelationId, Failure};
use pg::{Origin, Permit, WriteTx};

use crate::Payments;

/// What came of something the provider said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageResult {
    /// It is done, now or before.
    Done(&'static str),
    /// It is not about anything of ours.
    Ignored(&'static str),
    /// The payment that it is about is not known yet. Nothing was written.
    Waits { intent: String },
    /// A person must look.
    Failed(String),
}

/// A transaction of the product itself, for something that was begun elsewhere or begins here.
pub(crate) async fn write(
    payments: &Payments,
    reason: &'static str,
    action: &'static str,
    correlation: Option<uuid::Uuid>,
) -> Result<WriteTx, Failure> {
    let correlation = correlation.unwrap_or_else(|| payments.db.ambient().uuid());
    let permit = Permit::system(reason, Origin::internal(CorrelationId(correlation)));
    Ok(payments.db.write(permit, action).await?)
}

/// When to try again after so many tries: twice as long each time, up to an end.
pub(crate) fn later(
    now: DateTime<Utc>,
    attempts: i32,
    first_seconds: i64,
    longest_seconds: i64,
) -> DateTime<Utc> {
    let doubled = first_seconds.saturating_mul(1_i64 << attempts.clamp(1, 30).saturating_sub(1));
    now + TimeDelta::seconds(doubled.min(longest_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let now = DateTime::UNIX_EPOCH;
        let waits: Vec<i64> =
            [-1, 0, 1, 2, 3, 9, i32::MAX].iter().map(|n| later(now, *n, 1, 100).timestamp()).collect();
        assert_eq!(waits, [1, 1, 1, 2, 4, 100, 100]);
    }
}
