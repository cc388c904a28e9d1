//! Waiting longer after each failure, within bounds, and never in step with other nodes.

use std::time::Duration;

use kernel::Ambient;

#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// How long to wait after one more failure: half of the bound of this turn, and a random part of the rest.
    pub fn failed(&mut self, ambient: &Ambient) -> Duration {
        let bound = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        bound / 2 + fraction(ambient, bound / 2)
    }

    pub const fn succeeded(&mut self) {
        self.failures = 0;
    }

    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

/// A random part of `whole`.
pub fn fraction(ambient: &Ambient, whole: Duration) -> Duration {
    whole.mul_f64(f64::from(u32::from_le_bytes(ambient.bytes())) / f64::from(u32::MAX))
}

/// `around`, a tenth more or less.
pub fn jittered(ambient: &Ambient, around: Duration) -> Duration {
    around.mul_f64(0.9) + fraction(ambient, around.mul_f64(0.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_bound_and_start_over_after_a_success() {
        let ambient = Ambient::system();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));
        let waits: Vec<_> = (0..40).map(|_| backoff.failed(&ambient)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(3)));
        assert!(waits[0] <= Duration::from_millis(100) && waits[39] >= Duration::from_millis(1500));
        backoff.succeeded();
        assert!(backoff.failed(&ambient) <= Duration::from_millis(100));
    }
}
