//! Budgets of projects: when one is crossed.

use chrono::{DateTime, Datelike as _, Months, NaiveDate, Utc};

/// A budget and how far it was added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spending {
    pub amount_minor: i64,
    pub threshold_percent: i32,
    /// As it was posted.
    pub spent_minor: i64,
    /// Used and not posted.
    pub unposted_minor: i64,
    pub crossed_at: Option<DateTime<Utc>>,
    /// When the budget itself was last changed.
    pub updated_at: DateTime<Utc>,
}

/// What follows from what was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    pub crossed_at: Option<DateTime<Utc>>,
    /// It was crossed just now, and people are told.
    pub told: bool,
}

impl Spending {
    /// What was spent up to now, posted or not.
    pub const fn spent_now_minor(&self) -> i64 {
        self.spent_minor.saturating_add(self.unposted_minor)
    }

    /// Whether as much was spent as the threshold says.
    pub fn reached(&self) -> bool {
        i128::from(self.spent_now_minor()) * 100
            >= i128::from(self.amount_minor) * i128::from(self.threshold_percent)
    }

    /// A threshold is crossed once in a month, even when a credit takes the spending below it in between. Only a budget
    /// that was changed since, and is not reached any more, can be crossed again.
    pub fn decide(&self, now: DateTime<Utc>) -> Crossing {
        match self.crossed_at {
            None if self.reached() => Crossing { crossed_at: Some(now), told: true },
            Some(at) if self.updated_at > at && !self.reached() => Crossing { crossed_at: None, told: false },
            crossed_at => Crossing { crossed_at, told: false },
        }
    }
}

/// The first day of the month (UTC) that `at` is in, and of the one after.
pub fn month_of(at: DateTime<Utc>) -> (NaiveDate, NaiveDate) {
    let first = at.date_naive().with_day(1).unwrap_or_else(|| at.date_naive());
    (first, first.checked_add_months(Months::new(1)).unwrap_or(NaiveDate::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is a failed test")]
    use chrono::TimeDelta;

    use super::*;

    fn spending(spent_minor: i64, crossed_at: Option<DateTime<Utc>>) -> Spending {
        let updated_at = DateTime::UNIX_EPOCH;
        Spending {
            amount_minor: 1000,
            threshold_percent: 80,
            spent_minor,
            unposted_minor: 0,
            crossed_at,
            updated_at,
        }
    }

    #[test]
    fn what_is_used_and_not_posted_counts_as_spent() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        let used = |unposted_minor| Spending { unposted_minor, ..spending(700, None) };
        assert_eq!((used(99).reached(), used(100).reached()), (false, true));
        assert_eq!(used(100).decide(now), Crossing { crossed_at: Some(now), told: true });
        assert_eq!(used(i64::MAX).spent_now_minor(), i64::MAX);
    }

    #[test]
    fn a_threshold_is_told_of_once() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        assert_eq!(spending(799, None).decide(now), Crossing { crossed_at: None, told: false });
        assert_eq!(spending(800, None).decide(now), Crossing { crossed_at: Some(now), told: true });
        assert_eq!(spending(900, Some(now)).decide(now), Crossing { crossed_at: Some(now), told: false });
        assert_eq!(spending(700, Some(now)).decide(now), Crossing { crossed_at: Some(now), told: false });
    }

    #[test]
    fn a_budget_that_was_raised_can_be_crossed_again() {
        let crossed = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        let raised = Spending { updated_at: crossed + TimeDelta::hours(1), ..spending(700, Some(crossed)) };
        assert_eq!(raised.decide(crossed), Crossing { crossed_at: None, told: false });
        let still = Spending { spent_minor: 800, ..raised };
        assert_eq!(still.decide(crossed), Crossing { crossed_at: Some(crossed), told: false });
    }

    #[test]
    fn a_budget_that_was_changed_when_it_was_crossed_stays_crossed() {
        let crossed = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        let same = Spending { updated_at: crossed, ..spending(700, Some(crossed)) };
        assert_eq!(same.decide(crossed), Crossing { crossed_at: Some(crossed), told: false });
    }

    #[test]
    fn months_begin_on_their_first_day() {
        let at: DateTime<Utc> = "2026-12-31T23:59:59Z".parse().unwrap();
        let (from, to) = month_of(at);
        assert_eq!((from.to_string(), to.to_string()), ("2026-12-01".to_owned(), "2027-01-01".to_owned()));
    }
}
