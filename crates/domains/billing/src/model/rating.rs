//! What use costs: exact, in whole numbers.
//!
//! A price is per hour and time is in whole seconds, so every cost is a whole number of 3600ths of a minor unit. What
//! is due is posted in whole minor units and the rest is carried to the next time, so however time is cut into windows
//! the sum of what was posted is the floor of the exact cost.

/// How many parts a minor unit has.
pub const PARTS: i64 = 3600;
const HOUR_SECONDS: i64 = 3600;

/// What becomes due with `seconds` more of use (fewer, when they are negative), after what was carried before; and what
/// is carried after it. Nothing when the cost is beyond what 64 bits hold in parts.
///
/// The only formula of a cost in the programs; `usage_cost` is the same one in the database, where it raises an error
/// beyond 64 bits. A property test compares them.
pub fn usage_cost(carry: i32, unit_price_minor: i64, units: i32, seconds: i64) -> Option<(i64, i32)> {
    let rate = unit_price_minor.checked_mul(i64::from(units))?;
    let parts = rate.checked_mul(seconds)?.checked_add(i64::from(carry))?;
    Some((parts.div_euclid(PARTS), i32::try_from(parts.rem_euclid(PARTS)).ok()?))
}

/// The same when a part of a minor unit counts as a whole one: what is set aside is never too little.
pub fn usage_cost_rounded_up(unit_price_minor: i64, units: i32, seconds: i64) -> Option<i64> {
    let almost_one = i32::try_from(PARTS - 1).ok()?;
    usage_cost(almost_one, unit_price_minor, units, seconds).map(|(amount, _)| amount)
}

/// What an hour of use costs.
pub fn hour_cost(unit_price_minor: i64, units: i32) -> Option<i64> {
    usage_cost(0, unit_price_minor, units, HOUR_SECONDS).map(|(amount, _)| amount)
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
                let (amount, after) = usage_cost(carry, rate, 1, seconds).unwrap();
                prop_assert!(amount >= 0 && (0..3600).contains(&after));
                posted += i128::from(amount);
                carry = after;
                exact += i128::from(rate) * i128::from(seconds);
                prop_assert_eq!(posted, exact / i128::from(PARTS));
            }
        }

        #[test]
        fn how_an_interval_is_cut_makes_no_difference(rate in 0..1_000_000i64, cuts in prop::collection::vec(1..4000i64, 1..60)) {
            let whole = usage_cost(0, rate, 1, cuts.iter().sum()).unwrap();
            let (mut carry, mut posted) = (0, 0);
            for seconds in cuts {
                let (amount, after) = usage_cost(carry, rate, 1, seconds).unwrap();
                (posted, carry) = (posted + amount, after);
            }
            prop_assert_eq!((posted, carry), whole);
        }

        #[test]
        fn what_is_taken_back_is_what_was_charged(carry in 0..3600i32, rate in 0..1_000_000_000i64, seconds in 0..1_000_000i64) {
            let (amount, after) = usage_cost(carry, rate, 1, seconds).unwrap();
            prop_assert_eq!(usage_cost(after, rate, 1, -seconds), Some((-amount, carry)));
        }

        #[test]
        fn a_cost_is_exact_or_nothing(carry in any::<i32>(), price in any::<i64>(), units in any::<i32>(), seconds in any::<i64>()) {
            let Some((amount, after)) = usage_cost(carry, price, units, seconds) else { return Ok(()) };
            let exact = i128::from(price) * i128::from(units) * i128::from(seconds) + i128::from(carry);
            prop_assert_eq!(i128::from(amount) * i128::from(PARTS) + i128::from(after), exact);
        }

        #[test]
        fn rounded_up_is_the_least_that_covers_it(price in 0..1_000_000_000i64, units in 0..100i32, seconds in 0..100_000i64) {
            let up = usage_cost_rounded_up(price, units, seconds).unwrap();
            let exact = price * i64::from(units) * seconds;
            prop_assert!(up * PARTS >= exact && (up - 1) * PARTS < exact);
        }

        #[test]
        fn an_hour_costs_the_price_of_its_units(price in 0..1_000_000_000i64, units in 0..100_000i32) {
            prop_assert_eq!(hour_cost(price, units), Some(price * i64::from(units)));
        }
    }
}
