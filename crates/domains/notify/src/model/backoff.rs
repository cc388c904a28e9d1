//! When a delivery is tried again, and when it is given up.

use chrono::{DateTime, TimeDelta, Utc};

const FIRST: TimeDelta = TimeDelta::seconds(15);
const LONGEST: TimeDelta = TimeDelta::hours(1);
/// Given up after this many attempts or this time, whichever comes first.
pub const MOST_ATTEMPTS: i32 = 40;
pub const MOST_TIME: TimeDelta = TimeDelta::hours(24);

/// When attempt number `attempts` (from 1) has failed: the time of the next, or nothing when it was the last. It
/// doubles up to an hour; the upper half of it is random, so that what failed together does not come back together.
pub fn next_attempt(
    queued_at: DateTime<Utc>,
    now: DateTime<Utc>,
    attempts: i32,
    random: u32,
) -> Option<DateTime<Utc>> {
    if attempts >= MOST_ATTEMPTS {
        return None;
    }
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(16);
    let whole = (FIRST * 2_i32.saturating_pow(doublings)).min(LONGEST);
    let half = whole.num_milliseconds() / 2;
    let extra = half.saturating_mul(i64::from(random)) / i64::from(u32::MAX);
    let next = now + TimeDelta::milliseconds(half + extra);
    (next < queued_at + MOST_TIME).then_some(next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_delivery_ends(random: u32) {
            let begin = DateTime::UNIX_EPOCH;
            let (mut now, mut attempts) = (begin, 1);
            while let Some(next) = next_attempt(begin, now, attempts, random) {
                prop_assert!(next > now && next - now <= LONGEST);
                now = next;
                attempts += 1;
            }
            prop_assert!(attempts <= MOST_ATTEMPTS);
            prop_assert!(now - begin >= TimeDelta::hours(12), "not given up early: {now}");
        }
    }

    #[test]
    fn it_waits_longer_each_time() {
        let now = DateTime::UNIX_EPOCH;
        let waits: Vec<_> = (1..10).map(|n| next_attempt(now, now, n, u32::MAX).unwrap() - now).collect();
        assert!(waits.is_sorted());
        assert_eq!((waits[0], waits[8]), (FIRST, LONGEST));
    }
}
