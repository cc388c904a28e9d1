//! Counts per minute, in bounded memory.

use std::{collections::HashMap, hash::Hash, time::Duration};

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Keys remembered within a minute; beyond that all of them share one count.
const MOST_KEYS: usize = 20_000;

pub struct Window<K> {
    began: Instant,
    counts: HashMap<K, u32>,
    others: u32,
    most_keys: usize,
}

impl<K: Eq + Hash> Window<K> {
    pub fn new() -> Self {
        Self::with_keys(MOST_KEYS)
    }

    pub fn with_keys(most_keys: usize) -> Self {
        Self { began: Instant::now(), counts: HashMap::new(), others: 0, most_keys }
    }

    fn turn(&mut self) {
        if self.began.elapsed() >= MINUTE {
            self.began = Instant::now();
            self.counts.clear();
            self.others = 0;
        }
    }

    /// How often `key` came in this minute, this time included.
    pub fn count(&mut self, key: K) -> u32 {
        self.turn();
        let full = self.counts.len() >= self.most_keys && !self.counts.contains_key(&key);
        let count = if full { &mut self.others } else { self.counts.entry(key).or_default() };
        *count = count.saturating_add(1);
        *count
    }

    pub fn seen(&mut self, key: &K) -> u32 {
        self.turn();
        let full = self.counts.len() >= self.most_keys;
        self.counts.get(key).copied().unwrap_or(if full { self.others } else { 0 })
    }

    /// Until the next minute begins.
    pub fn rest(&self) -> Duration {
        MINUTE.saturating_sub(self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_begin_anew_each_minute() {
        let mut window = Window::new();
        assert_eq!((window.count("a"), window.count("a"), window.count("b")), (1, 2, 1));
        tokio::time::advance(MINUTE).await;
        assert_eq!((window.seen(&"a"), window.count("a")), (0, 1));
    }

    #[test]
    fn beyond_its_bound_all_keys_share_one_count() {
        let mut window = Window::new();
        for key in 0..MOST_KEYS {
            assert_eq!(window.count(key), 1);
        }
        assert_eq!((window.count(MOST_KEYS), window.count(MOST_KEYS + 1), window.count(0)), (1, 2, 2));
        assert_eq!(window.counts.len(), MOST_KEYS);
        assert_eq!(
            (window.seen(&(MOST_KEYS + 2)), window.seen(&1)),
            (2, 1),
            "strangers share what is seen too"
        );
    }
}
