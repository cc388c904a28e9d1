//! Budgets per address, so that guessing is slow and nobody keeps the issuer to themselves.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

use super::config::Rates;

/// Addresses remembered before idle ones are forgotten.
const MANY: usize = 10_000;
/// Forgetting walks over all addresses, so it happens at most this often.
const FORGET_EVERY_SECONDS: u64 = 10;

pub(crate) struct Limits {
    sign_in: Budgets,
    other: Budgets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    SignIn,
    Other,
}

struct Budgets {
    limiter: DefaultKeyedRateLimiter<String>,
    clock: DefaultClock,
    started: <DefaultClock as governor::clock::Clock>::Instant,
    turns: Turns,
}

/// When something that is done now and then was done last, in seconds since the start.
#[derive(Default)]
struct Turns(AtomicU64);

impl Turns {
    /// Whether it is time; of several who ask at once, one is told so.
    fn is_due(&self, now: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        now >= last + FORGET_EVERY_SECONDS
            && self.0.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Budgets {
    fn new(quota: Quota) -> Self {
        let clock = DefaultClock::default();
        let started = clock.now();
        Self { limiter: RateLimiter::keyed(quota), clock, started, turns: Turns::default() }
    }

    fn spend(&self, key: &String) -> Result<(), u64> {
        let now = self.clock.now();
        let uptime = now.duration_since(self.started).as_secs();
        if self.limiter.len() > MANY && self.turns.is_due(uptime) {
            self.limiter.retain_recent();
        }
        self.limiter.check_key(key).map_err(|not_until| not_until.wait_time_from(now).as_secs() + 1)
    }
}

impl Limits {
    pub fn new(rates: Rates) -> Self {
        Self {
            sign_in: Budgets::new(Quota::per_minute(rates.sign_in)),
            other: Budgets::new(Quota::per_minute(rates.other)),
        }
    }

    /// Takes one from the address's budget, or says how many seconds to wait.
    pub fn spend(&self, budget: Budget, address: Option<&str>) -> Result<(), u64> {
        let budgets = match budget {
            Budget::SignIn => &self.sign_in,
            Budget::Other => &self.other,
        };
        budgets.spend(&address_holder(address.unwrap_or_default()))
    }
}

/// Who an address stands for; what is none stands for itself.
pub(super) fn address_holder(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), endpoint::address_holder)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn one_address_is_stopped_and_another_is_not() {
        let two = NonZeroU32::new(2).unwrap();
        let limits = Limits::new(Rates { sign_in: two, other: two });
        let spend = |address| limits.spend(Budget::SignIn, Some(address)).is_ok();
        assert_eq!([spend("a"), spend("a"), spend("a"), spend("b")], [true, true, false, true]);
        assert!(limits.spend(Budget::Other, Some("a")).is_ok());
    }

    #[test]
    fn idle_addresses_are_forgotten_now_and_then_not_at_every_request() {
        let turns = Turns::default();
        let due = [9, 10, 11, 19, 20, 20, 500].map(|now| turns.is_due(now));
        assert_eq!(due, [false, true, false, false, true, false, true]);
    }
}
