//! How far a task has come, and whether it should stop.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU8, Ordering},
};

use kernel::Ambient;
use node_proto::contract::{FailureCode, Phase};
use tokio::sync::Notify;

use crate::drivers::{Done, DriverError, Steps};

/// No kind of work has as many phases.
const MOST_PHASES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancelled,
    Timeout,
}

/// Shared by the handler, which begins phases, and the session, which reports them.
pub struct Track {
    ambient: Ambient,
    phases: Mutex<Vec<Phase>>,
    stop: AtomicU8,
    changed: Notify,
}

impl Track {
    pub fn new(ambient: Ambient) -> Self {
        Self { ambient, phases: Mutex::default(), stop: AtomicU8::new(0), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Phase>> {
        self.phases.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn phases(&self) -> Vec<Phase> {
        self.lock().clone()
    }

    /// Ends the phase that the work is in.
    pub fn close(&self) -> Vec<Phase> {
        let now = self.ambient.now();
        let mut phases = self.lock();
        if let Some(last) = phases.last_mut().filter(|last| last.duration_ms.is_none()) {
            let lasted = now.signed_duration_since(last.started_at).num_milliseconds();
            last.duration_ms = Some(u64::try_from(lasted).unwrap_or(0));
        }
        phases.clone()
    }

    /// The next phase is not begun any more. The first reason counts.
    pub fn stop(&self, why: Stop) {
        let value = match why {
            Stop::Cancelled => 1,
            Stop::Timeout => 2,
        };
        let _ = self.stop.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn stopped(&self) -> Option<Stop> {
        match self.stop.load(Ordering::Relaxed) {
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::Timeout),
            _ => None,
        }
    }

    /// An error when the work should stop.
    pub fn check(&self) -> Done<()> {
        match self.stopped() {
            None => Ok(()),
            Some(Stop::Cancelled) => {
                Err(DriverError::new(FailureCode::Cancelled, "cancelled by the control plane"))
            }
            Some(Stop::Timeout) => {
                Err(DriverError::new(FailureCode::Timeout, "the time of this kind of task was up"))
            }
        }
    }

    /// Until another phase is begun.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Steps for Track {
    fn begin(&self, phase: &'static str) -> Done<()> {
        self.check()?;
        self.close();
        let mut phases = self.lock();
        if phases.len() < MOST_PHASES {
            phases.push(Phase { name: phase.to_owned(), started_at: self.ambient.now(), duration_ms: None });
        }
        drop(phases);
        self.changed.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_task_begins_no_further_phase() {
        let track = Track::new(Ambient::system());
        track.begin("one").unwrap();
        track.begin("two").unwrap();
        track.stop(Stop::Cancelled);
        track.stop(Stop::Timeout);
        assert_eq!(track.begin("three").unwrap_err().code, FailureCode::Cancelled);
        let phases = track.close();
        assert_eq!(phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(phases.iter().all(|phase| phase.duration_ms.is_some()));
    }
}
