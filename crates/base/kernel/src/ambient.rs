//! Where time and randomness come from: one place, injected.

use std::sync::{Arc, Mutex};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

pub trait Clock: Send + Sync {
    fn now(&self) -> DateTime<Utc>;
}

pub trait Entropy: Send + Sync {
    fn fill(&self, out: &mut [u8]);
}

/// The injected surroundings of the program. Cheap to clone.
#[derive(Clone)]
pub struct Ambient {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Ambient {
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    /// The real clock and the operating system's randomness.
    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemEntropy))
    }

    /// Now, to the microsecond: what Postgres can store, so that a value read back is equal.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now().trunc_subsecs(6)
    }

    pub fn fill(&self, out: &mut [u8]) {
        self.entropy.fill(out);
    }

    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A new version 7 UUID: sorted by creation time, random in the rest.
    pub fn uuid(&self) -> uuid::Uuid {
        let millis = u64::try_from(self.clock.now().timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.bytes::<10>()).into_uuid()
    }

    pub fn id<T: From<uuid::Uuid>>(&self) -> T {
        T::from(self.uuid())
    }
}

struct SystemClock;

impl Clock for SystemClock {
    // The one place that reads the wall clock.
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) {
        rand::RngCore::fill_bytes(&mut rand::rng(), out);
    }
}

/// A clock that tests move by hand.
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    pub fn starting_at(at: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(at)))
    }

    /// This clock with the operating system's randomness.
    pub fn ambient(self: &Arc<Self>) -> Ambient {
        Ambient::new(self.clone(), Arc::new(SystemEntropy))
    }

    pub fn advance(&self, by: TimeDelta) {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_sort_by_the_injected_time() {
        let clock = ManualClock::starting_at(DateTime::UNIX_EPOCH);
        let ambient = clock.ambient();
        let first = ambient.uuid();
        clock.advance(TimeDelta::milliseconds(1));
        let second = ambient.uuid();
        assert!(first < second);
        assert_eq!(first.get_version_num(), 7);
    }
}
