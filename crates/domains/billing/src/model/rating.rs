//! What use costs: exact, in whole numbers.
//!
//! A price is per hour and time is in whole seconds, so every cost is a whole number of 3600ths of a minor unit. What
//! is due is posted in whole minor units and the rest is carried to the next time, so however time is cut into windows
//! the sum of what was posted is the floor of the exact cost.

/// How many parts a minor unit has.
pub const PARTS: i128 = 3600;

/// What becomes due with `seconds` more of use (fewer, when they are negative) at `rate_per_hour` minor units, after
/// what was carried before; and what is carried after it. Nothing when the amount is beyond all money.
pub fn charge(carry: i32, rate_per_hour: i64, seconds: i64) -> Option<(i64, i32)> {
    let parts = i128::from(carry) + i128::from(rate_per_hour) * i128::from(seconds);
    let amount = i64::try_from(parts.div_euclid(PARTS)).ok()?;
    let carry = i32::try_from(parts.rem_euclid(PARTS)).ok()?;
    Some((amount, carry))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is a failed test")]
    use proptest::prelude::*;

    use super::*;

    fn steps() -> impl Strategy<Value = Vec<(i64, i64)>> {
        // Any price for any time; a rate of nothing is a pause.
        prop::collection::vec(
            (prop_oneof![Just(0), 0..10_000i64, 0..100_000_000_000_000i64], 0..90_000i64),
            0..50,
        )
    }

    proptest! {
        #[test]
        fn whatever_the_windows_the_sum_is_the_floor_of_the_exact_cost(steps in steps()) {
            let (mut carry, mut posted, mut exact) = (0, 0i128, 0i128);
            for (rate, seconds) in steps {
                let (amount, after) = charge(carry, rate, seconds).unwrap();
                prop_assert!(amount >= 0 && (0..3600).contains(&after));
                posted += i128::from(amount);
                carry = after;
                exact += i128::from(rate) * i128::from(seconds);
                prop_assert_eq!(posted, exact / PARTS);
            }
        }

        #[test]
        fn how_an_interval_is_cut_makes_no_difference(rate in 0..1_000_000i64, cuts in prop::collection::vec(1..4000i64, 1..60)) {
            let whole = charge(0, rate, cuts.iter().sum()).unwrap();
            let (mut carry, mut posted) = (0, 0);
            for seconds in cuts {
                let (amount, after) = charge(carry, rate, seconds).unwrap();
                (posted, carry) = (posted + amount, after);
            }
            prop_assert_eq!((posted, carry), whole);
        }

        #[test]
        fn what_is_taken_back_is_what_was_charged(carry in 0..3600i32, rate in 0..1_000_000_000i64, seconds in 0..1_000_000i64) {
            let (amount, after) = charge(carry, rate, seconds).unwrap();
            prop_assert_eq!(charge(after, rate, -seconds), Some((-amount, carry)));
        }

        #[test]
        fn nothing_overflows(carry in any::<i32>(), rate in any::<i64>(), seconds in any::<i64>()) {
            let _ = charge(carry, rate, seconds);
        }
    }
}
