//! Clocks that are off.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Ambient, Clock, Entropy};

struct Skewed {
    real: Ambient,
    off: TimeDelta,
}

impl Clock for Skewed {
    fn now(&self) -> DateTime<Utc> {
        self.real.now() + self.off
    }
}

impl Entropy for Skewed {
    fn fill(&self, out: &mut [u8]) {
        self.real.fill(out);
    }
}

/// The same surroundings, with a clock that is off by so much. Randomness stays real: keys depend on it.
pub fn skewed(real: &Ambient, off: TimeDelta) -> Ambient {
    if off.is_zero() {
        return real.clone();
    }
    let skewed = Arc::new(Skewed { real: real.clone(), off });
    Ambient::new(skewed.clone(), skewed)
}
