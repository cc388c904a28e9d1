//! How long something took, many times.

use std::time::Duration;

/// Times in the order of their length.
pub struct Times(Vec<Duration>);

impl Times {
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// In milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = (self.0.len() as f64 * share) as usize;
        self.0.get(at.min(last)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    pub fn text(&self) -> String {
        let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| self.quantile(share));
        format!("p50 {p50:.2} ms, p90 {p90:.2} ms, p99 {p99:.2} ms, max {max:.1} ms")
    }

    /// The same, of what takes less than milliseconds.
    pub fn text_micros(&self) -> String {
        let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| self.quantile(share) * 1e3);
        format!("p50 {p50:.0} µs, p90 {p90:.0} µs, p99 {p99:.0} µs, max {max:.0} µs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub fn quantiles_are_of_the_sorted_times_and_of_nothing_are_nothing() {
        let times = Times::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!([0.5, 0.99, 1.0].map(|share| times.quantile(share)), [51.0, 100.0, 100.0]);
        assert_eq!(Times::new(Vec::new()).quantile(0.5), 0.0);
    }
}
