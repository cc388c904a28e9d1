use proptest::prelude::*;

use super::*;

fn facts(total_minor: i64, burn_per_hour: i64) -> Facts {
    let now = DateTime::UNIX_EPOCH;
    Facts {
        total_minor,
        burn_per_hour,
        unposted_parts: 0,
        threshold_minor: 500,
        window_seconds: 60,
        low_runway_seconds: 0,
        now,
    }
}

fn after(seconds: i64) -> Option<DateTime<Utc>> {
    Some(DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds))
}

#[test]
fn a_balance_goes_down_through_every_state_and_each_is_told_once() {
    let mut state = None;
    let mut told = Vec::new();
    for total in [1000, 900, 501, 500, 400, 61, 60, 30, 1, 0, -5] {
        // One minor unit each second.
        let (status, notice) = decide(state, &facts(total, 3600));
        told.extend(notice);
        state = Some(status.state);
    }
    let depletes_at = DateTime::UNIX_EPOCH + TimeDelta::seconds(60);
    let low = Notice::LowBalance { depletes_at: after(500) };
    assert_eq!(told, [low, Notice::AutoReleasePending { depletes_at }, Notice::Depleted]);
}

#[test]
fn a_balance_that_does_not_last_is_low_however_much_it_is() {
    // 600.00 an hour, and an hour is what a launch must be able to pay for.
    let costly = |total| Facts { low_runway_seconds: 3600, ..facts(total, 60_000) };
    let state = |total| decide(Some(BalanceState::Healthy), &costly(total));
    assert_eq!(state(60_001).0.state, BalanceState::Healthy);
    let (status, notice) = state(60_000);
    let low = Notice::LowBalance { depletes_at: after(3600) };
    assert_eq!((status.state, notice), (BalanceState::LowBalance, Some(low)));
    assert_eq!(state(1_000).0.state, BalanceState::AutoReleasePending);
    let stopped = Facts { burn_per_hour: 0, ..costly(60_000) };
    let (status, notice) = decide(Some(status.state), &stopped);
    assert_eq!((status.state, notice), (BalanceState::Healthy, Some(Notice::Restored)));
}

#[test]
fn what_was_used_and_not_posted_counts_towards_the_threshold() {
    let used = |unposted_parts| Facts { unposted_parts, ..facts(510, 0) };
    let state = |unposted_parts| decide(None, &used(unposted_parts)).0.state;
    assert_eq!(state(3600 * 9 + 3599), BalanceState::Healthy);
    assert_eq!(state(3600 * 10), BalanceState::LowBalance);
}

#[test]
fn a_top_up_restores_and_the_next_fall_is_told_again() {
    let (status, notice) = decide(Some(BalanceState::Depleted), &facts(10_000, 0));
    assert_eq!((status.state, notice), (BalanceState::Healthy, Some(Notice::Restored)));
    let (status, notice) = decide(Some(status.state), &facts(100, 0));
    assert_eq!(
        (status.state, notice),
        (BalanceState::LowBalance, Some(Notice::LowBalance { depletes_at: None }))
    );
    // A small top-up from nothing is no good news and no warning.
    assert_eq!(decide(Some(BalanceState::Depleted), &facts(100, 0)).1, None);
}

#[test]
fn what_was_used_and_not_posted_brings_the_end_nearer() {
    let known = Facts { unposted_parts: 3600 * 40, ..facts(100, 3600) };
    let (status, _) = decide(None, &known);
    assert_eq!(status.depletes_at, Some(DateTime::UNIX_EPOCH + TimeDelta::seconds(60)));
    assert_eq!(status.state, BalanceState::AutoReleasePending);
}

#[test]
fn a_balance_at_the_threshold_is_low_and_one_above_it_is_not() {
    for (total, state) in [(501, BalanceState::Healthy), (500, BalanceState::LowBalance)] {
        assert_eq!(decide(None, &facts(total, 0)).0.state, state, "{total}");
    }
}

#[test]
fn nothing_depletes_when_nothing_is_left_or_nothing_runs() {
    for (total, burn) in [(0, 3600), (-1, 3600), (100, 0), (100, -1), (0, 0)] {
        assert_eq!(decide(None, &facts(total, burn)).0.depletes_at, None, "{total} {burn}");
    }
    let one = Some(DateTime::UNIX_EPOCH + TimeDelta::seconds(1));
    assert_eq!(decide(None, &facts(1, 3600)).0.depletes_at, one);
    // More was used than there is: it ends now, and not in the past.
    let overdrawn = Facts { unposted_parts: 3600 * 500, ..facts(100, 3600) };
    assert_eq!(decide(None, &overdrawn).0.depletes_at, Some(DateTime::UNIX_EPOCH));
}

proptest! {
    #[test]
    fn a_state_follows_from_the_facts_alone(total in any::<i64>(), burn in any::<i64>(), unposted in any::<i64>(),
        threshold in 0..1_000_000_000i64, window in 10..3600i64, runway in 0..100_000i64) {
        let now = DateTime::UNIX_EPOCH;
        let facts = Facts { total_minor: total, burn_per_hour: burn, unposted_parts: unposted, threshold_minor: threshold,
            window_seconds: window, low_runway_seconds: runway, now };
        let states = [BalanceState::Healthy, BalanceState::LowBalance, BalanceState::AutoReleasePending, BalanceState::Depleted];
        let (status, _) = decide(None, &facts);
        prop_assert_eq!(status.state == BalanceState::Depleted, total <= 0);
        for before in states {
            let (again, notice) = decide(Some(before), &facts);
            prop_assert_eq!(again, status);
            // Nothing is told of what was known, and the end is always told.
            prop_assert!(before != again.state || notice.is_none());
            if again.state == BalanceState::Depleted && before != again.state {
                prop_assert_eq!(notice, Some(Notice::Depleted));
            }
        }
        if status.state == BalanceState::AutoReleasePending {
            prop_assert!(status.depletes_at.is_some_and(|at| at <= now + TimeDelta::seconds(window)));
        }
    }

    #[test]
    fn at_the_time_of_depletion_the_balance_is_used_up_and_a_second_before_it_is_not(
        total in 1..1_000_000i64, burn in 1..10_000_000i64) {
        let facts = facts(total, burn);
        let (status, _) = decide(None, &facts);
        let seconds = status.depletes_at.map(|at| (at - facts.now).num_seconds()).unwrap_or(i64::MAX);
        let used = |seconds: i64| i128::from(burn) * i128::from(seconds);
        prop_assert!(used(seconds) >= i128::from(total) * 3600);
        prop_assert!(used(seconds - 1) < i128::from(total) * 3600);
    }

    #[test]
    fn more_money_is_never_worse(total in -1000..100_000i64, more in 0..100_000i64, burn in 0..1_000_000i64) {
        let rank = |state| match state {
            BalanceState::Depleted => 0,
            BalanceState::AutoReleasePending => 1,
            BalanceState::LowBalance => 2,
            BalanceState::Healthy => 3,
        };
        let before = decide(None, &facts(total, burn)).0.state;
        let after = decide(None, &facts(total + more, burn)).0.state;
        prop_assert!(rank(after) >= rank(before));
    }
}

#[test]
fn what_is_used_and_not_posted_comes_off_the_total_and_the_end_stays_where_it_is() {
    let facts = Facts { unposted_parts: 3600 * 40 + 17, ..facts(100, 3600) };
    let posted = facts.all_posted();
    assert_eq!((posted.total_minor, posted.unposted_parts), (60, 17));
    let end = |facts: &Facts| decide(None, facts).0.depletes_at;
    assert_eq!(end(&posted), end(&facts));
    let more_than_there_is = Facts { unposted_parts: 3600 * 101, ..facts }.all_posted();
    assert_eq!(decide(None, &more_than_there_is).0.state, BalanceState::Depleted);
}
