//! How an organization stands, and what follows from a change.

use chrono::{DateTime, TimeDelta, Utc};

use super::rating::PARTS;

lifecycle::lifecycle! {
    /// Any state can follow any other: a posting may be small or large.
    BalanceLifecycle = "balance", initial Healthy;
    states BalanceState {
        Healthy = "healthy", LowBalance = "low_balance", AutoReleasePending = "auto_release_pending", Depleted = "depleted",
    }
    events BalanceEvent {
        Recover = "recover", FallLow = "fall_low", NearEnd = "near_end", Deplete = "deplete",
    }
    Healthy on FallLow => LowBalance;
    Healthy on NearEnd => AutoReleasePending;
    Healthy on Deplete => Depleted;
    LowBalance on Recover => Healthy;
    LowBalance on NearEnd => AutoReleasePending;
    LowBalance on Deplete => Depleted;
    AutoReleasePending on Recover => Healthy;
    AutoReleasePending on FallLow => LowBalance;
    AutoReleasePending on Deplete => Depleted;
    Depleted on Recover => Healthy;
    Depleted on FallLow => LowBalance;
    Depleted on NearEnd => AutoReleasePending;
}

/// What is known of an organization when its state is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What is left to be used: prepaid, promotional and set aside.
    pub total_minor: i64,
    /// What everything that runs costs in an hour.
    pub burn_per_hour: i64,
    /// What was used and not posted, in 3600ths of a minor unit.
    pub unposted_parts: i64,
    pub threshold_minor: i64,
    pub window_seconds: i64,
    /// A balance that lasts no longer than this is low, however much it is.
    pub low_runway_seconds: i64,
    pub now: DateTime<Utc>,
}

/// How it stands, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceStatus {
    pub state: BalanceState,
    /// When the balance ends if everything goes on as it does; nothing when nothing runs or nothing is left.
    pub depletes_at: Option<DateTime<Utc>>,
}

/// Something that people are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// With the end that can be foreseen, if any.
    LowBalance {
        depletes_at: Option<DateTime<Utc>>,
    },
    AutoReleasePending {
        depletes_at: DateTime<Utc>,
    },
    Depleted,
    Restored,
}

impl Facts {
    /// With all that was used taken off the total.
    pub fn all_posted(self) -> Self {
        let (posted, left) = (self.unposted_parts / PARTS, self.unposted_parts % PARTS);
        Self { total_minor: self.total_minor.saturating_sub(posted), unposted_parts: left, ..self }
    }

    /// When the balance ends: the first whole second at which it is used up.
    pub fn depletes_at(&self) -> Option<DateTime<Utc>> {
        if self.total_minor <= 0 || self.burn_per_hour <= 0 {
            return None;
        }
        let left =
            (i128::from(self.total_minor) * i128::from(PARTS) - i128::from(self.unposted_parts)).max(0);
        let burn = i128::from(self.burn_per_hour);
        let seconds = i64::try_from((left + burn - 1) / burn).ok()?;
        // Beyond the end of the calendar is never.
        self.now.checked_add_signed(TimeDelta::try_seconds(seconds)?)
    }
}

/// The state that follows from the facts, and what people are told when it is another than before.
pub fn decide(previous: Option<BalanceState>, facts: &Facts) -> (BalanceStatus, Option<Notice>) {
    let depletes_at = facts.depletes_at();
    let within = |seconds: i64| {
        let until = facts.now + TimeDelta::seconds(seconds.clamp(0, 86_400));
        depletes_at.filter(|at| *at <= until)
    };
    let ending = within(facts.window_seconds);
    let state = if facts.total_minor <= 0 {
        BalanceState::Depleted
    } else if ending.is_some() {
        BalanceState::AutoReleasePending
    } else if facts.all_posted().total_minor <= facts.threshold_minor
        || within(facts.low_runway_seconds).is_some()
    {
        BalanceState::LowBalance
    } else {
        BalanceState::Healthy
    };
    let before = previous.unwrap_or(BalanceState::Healthy);
    let notice = match (before, state) {
        (before, after) if before == after => None,
        (_, BalanceState::Depleted) => Some(Notice::Depleted),
        (_, BalanceState::AutoReleasePending) => {
            ending.map(|depletes_at| Notice::AutoReleasePending { depletes_at })
        }
        // Who comes from below was told of worse before; the warning is for the way down.
        (BalanceState::Healthy, BalanceState::LowBalance) => Some(Notice::LowBalance { depletes_at }),
        (_, BalanceState::LowBalance) => None,
        (_, BalanceState::Healthy) => Some(Notice::Restored),
    };
    (BalanceStatus { state, depletes_at }, notice)
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
