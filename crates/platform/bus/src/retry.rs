//! How often and how soon: backoff with jitter, bounded on both sides.

use std::time::Duration;

/// The limits of one consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerPolicy {
    /// After this many attempts a message becomes a dead letter.
    pub max_attempts: u32,
    pub first_delay: Duration,
    pub max_delay: Duration,
    /// How often a dead letter with a transient cause is tried again by itself, and how slowly.
    pub slow_retries: u32,
    pub slow_first_delay: Duration,
    pub slow_max_delay: Duration,
    /// A handler that takes longer is stopped and counts as a transient failure.
    pub handler_timeout: Duration,
    /// Messages handled at once by one runner.
    pub concurrency: usize,
}

impl Default for ConsumerPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 8,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(5 * 60),
            slow_retries: 12,
            slow_first_delay: Duration::from_secs(15 * 60),
            slow_max_delay: Duration::from_secs(6 * 3600),
            handler_timeout: Duration::from_secs(30),
            concurrency: 4,
        }
    }
}

impl ConsumerPolicy {
    /// How long to wait after attempt number `attempts` failed.
    pub fn delay(&self, attempts: u32, random: u32) -> Duration {
        backoff(self.first_delay, self.max_delay, attempts, random)
    }

    /// How long a dead letter waits before its next automatic retry; nothing when it has had them all.
    pub fn slow_delay(&self, slow_retries: u32, random: u32) -> Option<Duration> {
        (slow_retries < self.slow_retries)
            .then(|| backoff(self.slow_first_delay, self.slow_max_delay, slow_retries + 1, random))
    }

    /// A lease outlives the handler's timeout and what surrounds the handler.
    pub(crate) fn lease(&self) -> Duration {
        self.handler_timeout + Duration::from_secs(30)
    }
}

/// Doubles from `first` with every attempt (counted from 1) up to `max`; the upper half of it is random, so
/// that what failed together does not return together.
pub(crate) fn backoff(first: Duration, max: Duration, attempts: u32, random: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    let whole = first.saturating_mul(doubled).min(max);
    let half = whole / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_lies_between_half_of_the_doubled_first_delay_and_the_maximum(
            first_ms in 1_u64..60_000, max_ms in 1_u64..3_600_000, attempts in 0_u32..200, random: u32
        ) {
            let (first, max) = (Duration::from_millis(first_ms), Duration::from_millis(max_ms));
            let delay = backoff(first, max, attempts, random);
            let whole = first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(max);
            prop_assert!(delay <= max);
            prop_assert!(delay <= whole);
            prop_assert!(delay >= whole / 2 - Duration::from_nanos(1));
        }

        #[test]
        fn without_luck_delays_never_shrink(attempts in 1_u32..100, random: u32) {
            let policy = ConsumerPolicy::default();
            prop_assert!(policy.delay(attempts, random) <= policy.delay(attempts + 1, random));
        }

        #[test]
        fn automatic_retries_of_a_dead_letter_end(done: u32, random: u32) {
            let policy = ConsumerPolicy::default();
            let delay = policy.slow_delay(done, random);
            prop_assert_eq!(delay.is_some(), done < policy.slow_retries);
            prop_assert!(delay.unwrap_or_default() <= policy.slow_max_delay);
        }
    }

    #[test]
    fn randomness_spreads_the_delay() {
        let policy = ConsumerPolicy::default();
        assert_eq!(policy.delay(1, 0), Duration::from_millis(500));
        assert_eq!(policy.delay(1, u32::MAX), Duration::from_secs(1));
    }
}
