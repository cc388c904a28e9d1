//! Bounds on enrolment, which is open to strangers: so many at once, so many failures per address and minute.

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use kernel::{Code, Problem};
use listener::network;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::window::Window;

/// A rack that enrols at once fails seldom; somebody who guesses fails always.
const FAILURES_PER_MINUTE: u32 = 30;
/// Failures of all together that are audited in a minute.
const AUDITED_PER_MINUTE: u32 = 300;
const AT_ONCE: usize = 32;
const WAIT_FOR_TURN: Duration = Duration::from_secs(10);

pub struct Enrolling {
    failures: Mutex<Window<IpAddr>>,
    audited: Mutex<Window<()>>,
    turns: Semaphore,
}

impl Default for Enrolling {
    fn default() -> Self {
        Self {
            failures: Mutex::new(Window::new()),
            audited: Mutex::new(Window::new()),
            turns: Semaphore::new(AT_ONCE),
        }
    }
}

impl Enrolling {
    fn failures(&self) -> MutexGuard<'_, Window<IpAddr>> {
        self.failures.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A turn, or how long to wait for one.
    pub async fn enter(&self, source: IpAddr) -> Result<SemaphorePermit<'_>, Problem> {
        let rest = {
            let mut failures = self.failures();
            (failures.seen(&network(source)) >= FAILURES_PER_MINUTE).then(|| failures.rest())
        };
        if let Some(rest) = rest {
            let text = "Too many failed enrolments from this address.";
            return Err(Problem::new(Code::RateLimitExceeded, text).retry_after(rest.as_secs() + 1));
        }
        let busy = || Problem::from_code(Code::ServiceUnavailable).retry_after(2);
        let turn = tokio::time::timeout(WAIT_FOR_TURN, self.turns.acquire()).await;
        turn.map_err(|_| busy())?.map_err(|_| busy())
    }

    pub fn failed(&self, source: IpAddr) {
        self.failures().count(network(source));
    }

    /// Whether one more failure belongs into the trail, which strangers from everywhere must not fill.
    pub fn is_audited(&self) -> bool {
        self.audited.lock().unwrap_or_else(|e| e.into_inner()).count(()) <= AUDITED_PER_MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_too_often_waits_and_others_do_not() {
        let enrolling = Enrolling::default();
        let [bad, good]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        for _ in 0..FAILURES_PER_MINUTE {
            assert!(enrolling.enter(bad).await.is_ok());
            enrolling.failed(bad);
        }
        let refused = enrolling.enter(bad).await.map(drop).unwrap_err();
        assert_eq!(refused.code, Code::RateLimitExceeded);
        assert!(refused.retry_after_seconds.is_some_and(|s| (1..=61).contains(&s)));
        assert!(enrolling.enter(good).await.is_ok());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(enrolling.enter(bad).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_failures_is_audited_a_little() {
        let enrolling = Enrolling::default();
        assert_eq!((0..10_000).filter(|_| enrolling.is_audited()).count(), AUDITED_PER_MINUTE as usize);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(enrolling.is_audited());
    }
}
