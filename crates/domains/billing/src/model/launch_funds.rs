//! Whether the money of an organization allows a launch, and what the launch sets aside. `meters_hold` decides the same
//! in the database, with the chain locked; a property test compares them.

use chrono::{DateTime, Utc};

use super::{
    balance::Facts,
    rating::{hour_cost, usage_cost_rounded_up},
};

/// What decides about the money of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFunds {
    /// What can be set aside: prepaid and promotional.
    pub available_minor: i64,
    /// Of the balance; none when the organization never had one.
    pub currency: Option<String>,
    /// The hold covers so much time.
    pub hold_seconds: i64,
    /// The budget of the project is used up and blocks launches.
    pub budget_blocked: bool,
    /// What is left of the spend cap of whoever launches; none without a cap.
    pub cap_left_minor: Option<i64>,
    /// All that is left to be used, with what is set aside.
    pub total_minor: i64,
    /// What everything that runs or starts costs in an hour.
    pub burn_per_hour: i64,
    /// Used and not posted, in 3600ths of a minor unit.
    pub unposted_parts: i64,
    pub window_seconds: i64,
    pub now: DateTime<Utc>,
}

/// When the balance ends, with what would be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depletion {
    pub at: DateTime<Utc>,
    pub in_seconds: i64,
    /// Within the time that a launch must be able to pay for, or within one window: whoever launches is warned.
    pub is_soon: bool,
}

/// Machines of one kind and size, as their meters will count them.
#[derive(Clone, Copy, Debug)]
pub struct LaunchCost<'a> {
    pub unit_price_minor: i64,
    pub units: i32,
    pub members: u32,
    pub currency: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FundsRefusal {
    /// The balance is in another currency than the price.
    Currency,
    BudgetBlocked,
    /// The spend cap of the service account does not cover it.
    SpendCap {
        left_minor: i64,
        needed_minor: i64,
    },
    Insufficient {
        available_minor: i64,
        needed_minor: i64,
    },
}

impl FundsRefusal {
    /// The reason that clients read.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Currency => "currency",
            Self::BudgetBlocked => "budget_blocked",
            Self::SpendCap { .. } => "spend_cap",
            Self::Insufficient { .. } => "funds",
        }
    }
}

impl LaunchFunds {
    /// What the launch sets aside, or why it is refused.
    pub fn decide(&self, cost: LaunchCost<'_>) -> Result<i64, FundsRefusal> {
        if self.currency.as_deref().is_some_and(|currency| currency != cost.currency) {
            return Err(FundsRefusal::Currency);
        }
        if self.budget_blocked {
            return Err(FundsRefusal::BudgetBlocked);
        }
        let available_minor = self.available_minor;
        let needed_minor = self.hold_minor(cost);
        let is_free = usage_cost_rounded_up(cost.unit_price_minor, cost.units, 1) == Some(0);
        let is_short = |left: i64| left < needed_minor || (left <= 0 && !is_free);
        if let Some(left_minor) = self.cap_left_minor.filter(|left| is_short(*left)) {
            return Err(FundsRefusal::SpendCap { left_minor, needed_minor });
        }
        if is_short(available_minor) {
            return Err(FundsRefusal::Insufficient { available_minor, needed_minor });
        }
        Ok(needed_minor)
    }

    /// When the balance ends if the launch runs from now on and everything else goes on. None when nothing costs anything, or
    /// nothing is left.
    pub fn depletion(&self, cost: LaunchCost<'_>) -> Option<Depletion> {
        let more = hour_cost(cost.unit_price_minor, cost.units)
            .and_then(|each| each.checked_mul(i64::from(cost.members)))
            .unwrap_or(i64::MAX);
        let facts = Facts {
            total_minor: self.total_minor,
            burn_per_hour: self.burn_per_hour.saturating_add(more),
            unposted_parts: self.unposted_parts,
            threshold_minor: 0,
            window_seconds: self.window_seconds,
            low_runway_seconds: self.hold_seconds,
            now: self.now,
        };
        let at = facts.depletes_at()?;
        let in_seconds = (at - self.now).num_seconds();
        Some(Depletion { at, in_seconds, is_soon: in_seconds <= self.hold_seconds.max(self.window_seconds) })
    }

    /// What the launch would set aside. A cost that no number holds is the largest.
    pub fn hold_minor(&self, cost: LaunchCost<'_>) -> i64 {
        let each = usage_cost_rounded_up(cost.unit_price_minor, cost.units, self.hold_seconds);
        each.and_then(|each| each.checked_mul(i64::from(cost.members))).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn funds(available_minor: i64) -> LaunchFunds {
        LaunchFunds {
            available_minor,
            currency: Some("USD".to_owned()),
            hold_seconds: 1800,
            budget_blocked: false,
            cap_left_minor: None,
            total_minor: available_minor,
            burn_per_hour: 0,
            unposted_parts: 0,
            window_seconds: 60,
            now: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_launch_is_warned_when_the_balance_ends_within_what_it_must_be_able_to_pay() {
        // 600.00 an hour for two machines together.
        let cost = cost(30_000, 1, 2);
        let seconds = |funds: LaunchFunds| funds.depletion(cost).map(|end| (end.in_seconds, end.is_soon));
        assert_eq!(seconds(funds(30_000)), Some((1800, true)));
        assert_eq!(seconds(funds(30_017)), Some((1802, false)));
        assert_eq!(funds(30_000).depletion(cost).map(|end| end.at.timestamp()), Some(1800));
        // What runs already ends it sooner, and so does what was used.
        assert_eq!(seconds(LaunchFunds { burn_per_hour: 60_000, ..funds(30_017) }), Some((901, true)));
        assert_eq!(seconds(LaunchFunds { unposted_parts: 3600 * 17, ..funds(30_017) }), Some((1800, true)));
        // Without a hold, a window is what counts.
        let no_hold = |total| LaunchFunds { hold_seconds: 0, ..funds(total) };
        assert_eq!(seconds(no_hold(1000)), Some((60, true)));
        assert_eq!(seconds(no_hold(1017)), Some((62, false)));
    }

    #[test]
    fn what_costs_nothing_never_ends_a_balance() {
        assert_eq!(funds(1000).depletion(cost(0, 1, 1)), None);
        assert_eq!(funds(0).depletion(cost(451, 1, 1)), None);
    }

    fn cost(unit_price_minor: i64, units: i32, members: u32) -> LaunchCost<'static> {
        LaunchCost { unit_price_minor, units, members, currency: "USD" }
    }

    #[test]
    fn a_launch_needs_the_cost_of_the_first_time_of_all_its_members() {
        // Half an hour of 3 machines with 2 GPUs at 4.51.
        assert_eq!(funds(1353).decide(cost(451, 2, 3)), Ok(1353));
        let refused = FundsRefusal::Insufficient { available_minor: 1352, needed_minor: 1353 };
        assert_eq!(funds(1352).decide(cost(451, 2, 3)), Err(refused));
        assert_eq!(funds(i64::MAX - 1).hold_minor(cost(1_000_000_000, 100_000, u32::MAX)), i64::MAX);
    }

    #[test]
    fn without_a_hold_something_must_be_there_unless_it_is_free() {
        let free_of_hold = |available_minor| LaunchFunds { hold_seconds: 0, ..funds(available_minor) };
        assert_eq!(free_of_hold(1).decide(cost(451, 1, 1)), Ok(0));
        let refused = FundsRefusal::Insufficient { available_minor: 0, needed_minor: 0 };
        assert_eq!(free_of_hold(0).decide(cost(451, 1, 1)), Err(refused));
        assert_eq!(free_of_hold(0).decide(cost(0, 1, 1)), Ok(0));
    }

    #[test]
    fn currency_budget_and_spend_cap_are_looked_at_first() {
        let blocked = LaunchFunds { budget_blocked: true, ..funds(0) };
        assert_eq!(blocked.decide(cost(451, 1, 1)), Err(FundsRefusal::BudgetBlocked));
        let euros = LaunchFunds { currency: Some("EUR".to_owned()), ..blocked };
        assert_eq!(euros.decide(cost(451, 1, 1)), Err(FundsRefusal::Currency));
        let capped = LaunchFunds { cap_left_minor: Some(225), ..funds(0) };
        let refused = FundsRefusal::SpendCap { left_minor: 225, needed_minor: 226 };
        assert_eq!(capped.decide(cost(451, 1, 1)), Err(refused));
        let new = LaunchFunds { currency: None, ..funds(1000) };
        assert_eq!(new.decide(cost(451, 1, 1)), Ok(226));
    }

    #[test]
    fn a_spend_cap_covers_the_hold_and_something_must_be_left_of_it_unless_it_is_free() {
        let capped = |left| LaunchFunds { cap_left_minor: Some(left), ..funds(10_000) };
        assert_eq!(capped(226).decide(cost(451, 1, 1)), Ok(226));
        let no_hold = |left| LaunchFunds { hold_seconds: 0, ..capped(left) };
        assert_eq!(no_hold(1).decide(cost(451, 1, 1)), Ok(0));
        let refused = FundsRefusal::SpendCap { left_minor: 0, needed_minor: 0 };
        assert_eq!(no_hold(0).decide(cost(451, 1, 1)), Err(refused));
        assert_eq!(no_hold(0).decide(cost(0, 1, 1)), Ok(0));
    }

    #[test]
    fn each_refusal_has_the_reason_of_the_contract() {
        let insufficient = FundsRefusal::Insufficient { available_minor: 0, needed_minor: 1 };
        let capped = FundsRefusal::SpendCap { left_minor: 0, needed_minor: 1 };
        let all = [FundsRefusal::Currency, FundsRefusal::BudgetBlocked, capped, insufficient];
        assert_eq!(all.map(FundsRefusal::reason), ["currency", "budget_blocked", "spend_cap", "funds"]);
    }
}
