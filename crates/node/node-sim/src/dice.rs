//! Chance that can be repeated: the same seed, node and purpose give the same throws in the same order.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use node_agent::drivers::simulated::mix;

/// What a die is thrown for. Each has its own sequence, so that one kind of fault does not move another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What sort of node this is: its clock, whether its network flaps.
    Nature,
    Wire,
    Journal,
    Tasks,
    Repeats,
    Restarts,
}

/// A sequence of throws. Threads may share it; they then share the sequence.
pub struct Dice(AtomicU64);

/// Steps that are odd and far apart visit every state once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    pub fn new(seed: u64, node: u64, purpose: Purpose) -> Self {
        Self(AtomicU64::new(mix(mix(seed) ^ node) ^ mix(purpose as u64 + 1)))
    }

    pub fn throw(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed))
    }

    /// From 0 to just below 1.
    pub fn share(&self) -> f64 {
        // 53 bits are what a float holds exactly.
        (self.throw() >> 11) as f64 / ((1_u64 << 53) as f64)
    }

    /// True in `rate` of all throws. A rate of zero does not throw.
    pub fn falls(&self, rate: f64) -> bool {
        rate > 0.0 && self.share() < rate
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.throw() % bound.max(1)
    }

    pub fn between(&self, range: &RangeInclusive<Duration>) -> Duration {
        let span = range.end().saturating_sub(*range.start());
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        if micros == 0 {
            *range.start()
        } else {
            *range.start() + Duration::from_micros(self.below(micros + 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_met_and_the_bounds_are_kept() {
        let dice = Dice::new(1, 2, Purpose::Wire);
        let hits = (0..20_000).filter(|_| dice.falls(0.1)).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
        assert!((0..100).all(|_| !dice.falls(0.0) && dice.falls(1.0)));
        let range = Duration::from_millis(3)..=Duration::from_millis(5);
        assert!((0..1_000).all(|_| range.contains(&dice.between(&range))));
    }
}
