//! Spend caps of service accounts: what one may spend in a calendar month (UTC).
//!
//! A cap refuses and ends: a launch that the rest of the cap does not cover is refused, and when the cap is reached, what the
//! account runs is released. A budget is of a project and counts everybody in it; a cap is of one account and touches nobody
//! else's machines.

use chrono::{DateTime, Utc};
use kernel::ids::{ProjectId, ServiceAccountId};
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::Spending;

/// What a service account may spend in a calendar month (UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpendCap {
    pub service_account_id: ServiceAccountId,
    pub project_id: ProjectId,
    pub amount_minor: i64,
    pub currency: String,
    /// Spent in this month up to now, with what is used and not posted.
    pub spent_minor: i64,
    /// What launches of the account may still set aside.
    pub left_minor: i64,
    /// When the cap was reached in this month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What an account has spent this month, and when it was last added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapSpending {
    pub amount_minor: i64,
    pub spent_minor: i64,
    pub unposted_minor: i64,
    pub reached_at: Option<DateTime<Utc>>,
    pub updated_at: DateTime<Utc>,
}

impl From<CapSpending> for Spending {
    /// A cap is a budget without a threshold below it.
    fn from(cap: CapSpending) -> Self {
        Self {
            amount_minor: cap.amount_minor,
            threshold_percent: 100,
            spent_minor: cap.spent_minor,
            unposted_minor: cap.unposted_minor,
            crossed_at: cap.reached_at,
            updated_at: cap.updated_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_reached_when_all_of_it_is_spent_posted_or_not() {
        let cap = |spent_minor, unposted_minor| {
            let updated_at = DateTime::UNIX_EPOCH;
            Spending::from(CapSpending {
                amount_minor: 1000,
                spent_minor,
                unposted_minor,
                reached_at: None,
                updated_at,
            })
        };
        assert_eq!([cap(999, 0), cap(900, 100), cap(1000, 0)].map(|cap| cap.reached()), [false, true, true]);
    }
}
