//! Budgets as people set and see them.

use chrono::{DateTime, Utc};
use kernel::{
    Problem,
    ids::{OrgId, ProjectId},
};
use schemars::JsonSchema;
use serde::Serialize;

pub use events::billing::BudgetAction;

use super::budget::Spending;

/// What a project may spend in a calendar month (UTC).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Budget {
    pub project_id: ProjectId,
    pub org_id: OrgId,
    pub amount_minor: i64,
    pub currency: String,
    /// Of the amount; when so much was spent, the action is taken.
    pub threshold_percent: i32,
    pub action: BudgetAction,
    /// Spent in this month up to now, with what is used and not posted.
    pub spent_minor: i64,
    /// Of that, used and not posted yet.
    pub unposted_minor: i64,
    /// Of the amount, rounded down.
    pub spent_percent: i64,
    /// When the threshold was crossed in this month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossed_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Budget {
    /// With what was spent up to now.
    pub fn with_spending(mut self, spending: &Spending) -> Self {
        self.spent_minor = spending.spent_now_minor();
        self.unposted_minor = spending.unposted_minor;
        let percent = i128::from(self.spent_minor) * 100 / i128::from(self.amount_minor.max(1));
        self.spent_percent = i64::try_from(percent).unwrap_or(i64::MAX);
        self
    }
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct BudgetWanted {
    pub amount_minor: i64,
    pub threshold_percent: i32,
    pub action: BudgetAction,
}

/// The largest budget and spend cap.
const MOST_MINOR: i64 = 1_000_000_000_000;

/// Whether this can be a budget or a spend cap.
pub fn check_amount(amount_minor: i64) -> Result<(), Problem> {
    if (1..=MOST_MINOR).contains(&amount_minor) {
        return Ok(());
    }
    let text = format!("must be an integer of minor units from 1 to {MOST_MINOR}");
    Err(Problem::field("amount_minor", text))
}

impl BudgetWanted {
    pub fn check(&self) -> Result<(), Problem> {
        check_amount(self.amount_minor)?;
        if !(1..=100).contains(&self.threshold_percent) {
            return Err(Problem::field("threshold_percent", "must be an integer from 1 to 100"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_spent_is_shown_in_percent_rounded_down() {
        let at = DateTime::UNIX_EPOCH;
        let budget = Budget {
            project_id: Uuid::nil().into(),
            org_id: Uuid::nil().into(),
            amount_minor: 300,
            currency: "USD".to_owned(),
            threshold_percent: 80,
            action: BudgetAction::Notify,
            spent_minor: 0,
            unposted_minor: 0,
            spent_percent: 0,
            crossed_at: None,
            version: 1,
            created_at: at,
            updated_at: at,
        };
        let shown = |spent_minor, unposted_minor| {
            let spending = Spending {
                amount_minor: 300,
                threshold_percent: 80,
                spent_minor,
                unposted_minor,
                crossed_at: None,
                updated_at: at,
            };
            let shown = budget.clone().with_spending(&spending);
            (shown.spent_minor, shown.unposted_minor, shown.spent_percent)
        };
        assert_eq!(shown(0, 0), (0, 0, 0));
        assert_eq!(shown(199, 1), (200, 1, 66));
        assert_eq!(shown(600, 0), (600, 0, 200));
    }

    #[test]
    fn a_budget_has_an_amount_and_a_threshold_in_percent() {
        let allowed = |amount_minor, threshold_percent| {
            let wanted = BudgetWanted { amount_minor, threshold_percent, action: BudgetAction::Block };
            wanted.check().is_ok()
        };
        assert_eq!([1, 50, 100].map(|threshold| allowed(100, threshold)), [true; 3]);
        assert_eq!([0, 101, -1].map(|threshold| allowed(100, threshold)), [false; 3]);
        assert!(!allowed(0, 50));
    }

    #[test]
    fn an_amount_is_positive_and_bounded() {
        for (amount, allowed) in
            [(0, false), (1, true), (MOST_MINOR, true), (MOST_MINOR + 1, false), (-1, false)]
        {
            assert_eq!(check_amount(amount).is_ok(), allowed, "{amount}");
        }
    }
}
