//! Tokens that this gateway has used up, so that one that is shown again is told from one that never was.
//!
//! The database forgets a token in the statement that uses it. What is kept here is for counting only, and nothing is let in
//! by it: the hashes of the last tokens, for as long as any token lives.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

type Hash = [u8; 32];

/// No token lives longer.
const KEPT: Duration = Duration::from_secs(300);
/// The oldest is forgotten before there are more.
const MOST: usize = 8192;

#[derive(Default)]
struct Spent {
    hashes: HashSet<Hash>,
    oldest_first: VecDeque<(Instant, Hash)>,
}

#[derive(Default)]
pub struct SpentTokens(Mutex<Spent>);

impl SpentTokens {
    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn note(&self, hash: Hash) {
        let mut spent = self.lock();
        spent.forget_old();
        if spent.hashes.insert(hash) {
            spent.oldest_first.push_back((Instant::now(), hash));
        }
    }

    /// Why a token is not accepted that the database does not know.
    pub fn refusal(&self, hash: &Hash) -> &'static str {
        let mut spent = self.lock();
        spent.forget_old();
        if spent.hashes.contains(hash) { "used" } else { "unknown" }
    }
}

impl Spent {
    /// Makes room for one.
    fn forget_old(&mut self) {
        let now = Instant::now();
        while let Some((noted_at, hash)) = self.oldest_first.front()
            && (self.oldest_first.len() >= MOST || now.duration_since(*noted_at) >= KEPT)
        {
            self.hashes.remove(hash);
            self.oldest_first.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> Hash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_token_is_known_for_its_time_and_only_so_many_are() {
        let spent = SpentTokens::default();
        assert_eq!(spent.refusal(&hash(0)), "unknown");
        spent.note(hash(0));
        assert_eq!(spent.refusal(&hash(0)), "used");
        assert_eq!(spent.refusal(&hash(1)), "unknown");
        tokio::time::advance(KEPT).await;
        assert_eq!(spent.refusal(&hash(0)), "unknown", "no token is as old");
        for number in 0..MOST + 10 {
            spent.note(hash(number));
        }
        assert_eq!(spent.refusal(&hash(0)), "unknown", "there were too many after it");
        assert_eq!(spent.refusal(&hash(MOST + 9)), "used");
        assert!(spent.lock().hashes.len() <= MOST && spent.lock().oldest_first.len() <= MOST);
    }
}
