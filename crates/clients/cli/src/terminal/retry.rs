//! When a lost connection is tried again.
//!
//! The server allows ten tokens a minute for each person, so pauses grow to ten seconds and shrink again only after an
//! attachment that lasted: a connection that breaks at once does not use up the tokens of other windows.

use std::time::Duration;

use tokio::time::Instant;

use super::mint::Retry;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After so long without a connection, the program gives up.
pub const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// An attachment that lasted this long was a good one.
const LASTING: Duration = Duration::from_secs(60);
/// How long the server may take to notice that the former connection of this window is lost: until then, it says that
/// another window types in the session.
const STALE: Duration = Duration::from_secs(150);

#[derive(Default)]
pub struct Retries {
    /// Attempts since the last attachment that lasted.
    attempts: u32,
    /// Since when there is no connection.
    lost_at: Option<Instant>,
}

impl Retries {
    /// The connection is lost; `ready_at` is when it was attached, if it was. Whether this is news.
    pub fn lost(&mut self, ready_at: Option<Instant>, now: Instant) -> bool {
        if let Some(ready_at) = ready_at {
            self.lost_at = None;
            if now >= ready_at + LASTING {
                self.attempts = 0;
            }
        }
        let is_news = self.lost_at.is_none();
        self.lost_at.get_or_insert(now);
        is_news
    }

    /// How long to wait before the next attempt; none when it is time to give up. `jitter` is between 0 and 1: after a
    /// restart, not everybody comes at once.
    pub fn pause(&mut self, retry: Retry, jitter: f64, now: Instant) -> Option<Duration> {
        let lost_at = self.lost_at?;
        let asked = match retry {
            Retry::Never => return None,
            Retry::WhileStale if now >= lost_at + STALE => return None,
            Retry::WhileStale => Duration::ZERO,
            Retry::After(asked) => asked,
        };
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(self.attempts.min(8)));
        self.attempts = self.attempts.saturating_add(1);
        let pause = asked.max(pause + pause.mul_f64(jitter / 4.0));
        (now + pause < lost_at + PATIENCE).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Retry = Retry::After(Duration::ZERO);

    fn seconds(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn pauses_grow_stay_below_ten_tokens_a_minute_and_end() {
        let start = Instant::now();
        let mut retries = Retries::default();
        assert!(retries.lost(Some(start), start));
        let (mut now, mut at) = (start, Vec::new());
        while let Some(pause) = retries.pause(NOW, 0.0, now) {
            now += pause;
            at.push((now - start).as_secs_f64());
            assert!(!retries.lost(None, now), "said once");
        }
        assert_eq!(at[..6], [0.5, 1.5, 3.5, 7.5, 15.5, 25.5]);
        for begin in 0..540 {
            let minute = f64::from(begin)..f64::from(begin + 60);
            assert!(at.iter().filter(|at| minute.contains(at)).count() < 10, "from {begin} s");
        }
        assert!(*at.last().unwrap() < 600.0 && *at.last().unwrap() > 580.0, "{at:?}");
    }

    #[test]
    fn only_an_attachment_that_lasted_makes_pauses_short_again() {
        let mut now = Instant::now();
        let mut retries = Retries::default();
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0] {
            assert!(retries.lost(Some(now), now), "each loss of a connection is said");
            assert_eq!(retries.pause(NOW, 0.0, now), seconds(expected));
        }
        let ready_at = now;
        now += LASTING;
        retries.lost(Some(ready_at), now);
        assert_eq!(retries.pause(NOW, 0.0, now), seconds(0.5));
    }

    #[test]
    fn what_the_server_asks_for_is_kept_and_jitter_only_adds() {
        let now = Instant::now();
        let mut retries = Retries::default();
        retries.lost(None, now);
        assert_eq!(retries.pause(Retry::After(Duration::from_secs(42)), 1.0, now), seconds(42.0));
        assert_eq!(retries.pause(NOW, 1.0, now), seconds(1.25));
        assert_eq!(retries.pause(Retry::After(PATIENCE), 0.0, now), None);
        assert_eq!(retries.pause(Retry::Never, 0.0, now), None);
    }

    #[test]
    fn a_window_that_seems_attached_is_waited_for_as_long_as_it_may_be_this_one() {
        let now = Instant::now();
        let mut retries = Retries::default();
        retries.lost(None, now);
        assert!(retries.pause(Retry::WhileStale, 0.0, now + STALE - Duration::from_millis(1)).is_some());
        assert_eq!(retries.pause(Retry::WhileStale, 0.0, now + STALE), None);
    }
}
