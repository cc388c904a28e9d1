//! Budgets per address, so that guessing is slow and nobody keeps the issuer to themselves.

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _, clock::DefaultClock};

use super::config::Rates;

/// Addresses remembered before idle ones are forgotten.
const MANY: usize = 10_000;

pub(crate) struct Limits {
    sign_in: DefaultKeyedRateLimiter<String>,
    other: DefaultKeyedRateLimiter<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    SignIn,
    Other,
}

impl Limits {
    pub fn new(rates: Rates) -> Self {
        Self {
            sign_in: RateLimiter::keyed(Quota::per_minute(rates.sign_in)),
            other: RateLimiter::keyed(Quota::per_minute(rates.other)),
        }
    }

    /// Takes one from the address's budget, or says how many seconds to wait.
    pub fn spend(&self, budget: Budget, address: Option<&str>) -> Result<(), u64> {
        let limiter = match budget {
            Budget::SignIn => &self.sign_in,
            Budget::Other => &self.other,
        };
        if limiter.len() > MANY {
            limiter.retain_recent();
        }
        limiter.check_key(&address.unwrap_or_default().to_owned()).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            wait.as_secs() + 1
        })
    }
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
}
