//! Which sessions there are, were, and may not be again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use kernel::ids::TerminalSessionId;
use node_proto::{
    contract::TerminalSessionReport,
    grant::{Grant, Owner, PtyAccess, PtyTarget},
};
use node_tunnel::Refusal;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Limits,
    actor::{self, Lifetime},
    program::Program,
    session::Session,
};

/// Ended sessions whose output is kept.
const MOST_ENDED: usize = 256;
/// Ids that are known to have been used, after the session was forgotten.
const MOST_USED: usize = 10_000;

/// How a session ended is reported for so long after its output was forgotten, of so many sessions.
const REPORTED: Duration = Duration::from_secs(5 * 60);
const MOST_REPORTED: usize = 256;

pub(crate) struct Registry {
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: HashMap<TerminalSessionId, Slot>,
    /// Sessions without processes, the first ended first.
    ended: VecDeque<TerminalSessionId>,
    used: UsedIds,
    /// How sessions ended whose output is forgotten, and when it was: the first first.
    past: VecDeque<(Instant, TerminalSessionReport)>,
    next_reservation: u64,
    stopping: bool,
}

enum Slot {
    Starting { owner: Owner, reservation: u64 },
    Started { session: Arc<Session>, _task: AbortOnDropHandle<()> },
}

impl Slot {
    fn owner(&self) -> Owner {
        match self {
            Self::Starting { owner, .. } => *owner,
            Self::Started { session, .. } => session.owner,
        }
    }

    fn has_processes(&self) -> bool {
        match self {
            Self::Starting { .. } => true,
            Self::Started { session, .. } => !session.read(|state| state.has_no_processes()),
        }
    }
}

impl Inner {
    /// Whether a place is still the one that was reserved with this number.
    fn is_reserved(&self, session_id: TerminalSessionId, number: u64) -> bool {
        let slot = self.slots.get(&session_id);
        matches!(slot, Some(Slot::Starting { reservation, .. }) if *reservation == number)
    }
}

/// The session of a grant.
pub(crate) enum Admitted {
    Session(Arc<Session>),
    New(Reservation),
}

/// The place of a session that is being started. Dropped, it is free.
pub(crate) struct Reservation {
    registry: Arc<Registry>,
    session_id: TerminalSessionId,
    number: u64,
}

impl Registry {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, inner: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Finds the session that a grant is for, or reserves the place of a new one.
    pub fn admit(self: &Arc<Self>, grant: &Grant, target: &PtyTarget) -> Result<Admitted, Refusal> {
        let mut inner = self.lock();
        if inner.stopping {
            return Err(Refusal("stopping"));
        }
        let session_id = target.session_id;
        match inner.slots.get(&session_id) {
            Some(slot) if slot.owner() != grant.owner => return Err(Refusal("not_your_session")),
            Some(Slot::Starting { .. }) => return Err(Refusal("session_starting")),
            // The end of a session may be wanted by others than who started it; who may, the signer decides.
            Some(Slot::Started { session, .. })
                if target.access == PtyAccess::End || session.actor == grant.actor =>
            {
                return Ok(Admitted::Session(session.clone()));
            }
            Some(Slot::Started { .. }) => return Err(Refusal("not_your_session")),
            None => {}
        }
        if inner.used.contains(session_id) {
            return Err(Refusal("session_ended"));
        }
        if target.access == PtyAccess::End {
            // A right to start it may be on its way: it comes too late now.
            inner.used.insert(session_id);
            return Err(Refusal("no_such_session"));
        }
        if target.access == PtyAccess::Watch {
            return Err(Refusal("no_such_session"));
        }
        if !target.may_start {
            return Err(Refusal("session_ended"));
        }
        let with_processes = inner.slots.values().filter(|slot| slot.has_processes());
        let (mut all, mut owners) = (0, 0);
        for slot in with_processes {
            all += 1;
            owners += usize::from(slot.owner() == grant.owner);
        }
        if all >= self.limits.sessions || owners >= self.limits.sessions_per_owner {
            return Err(Refusal("too_many_sessions"));
        }
        inner.next_reservation += 1;
        let number = inner.next_reservation;
        inner.slots.insert(session_id, Slot::Starting { owner: grant.owner, reservation: number });
        Ok(Admitted::New(Reservation { registry: self.clone(), session_id, number }))
    }

    /// All that have processes or keep their output.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        let inner = self.lock();
        let started = inner.slots.values().filter_map(|slot| match slot {
            Slot::Starting { .. } => None,
            Slot::Started { session, .. } => Some(session.clone()),
        });
        started.collect()
    }

    /// What the control plane is told. The end only when the output is forgotten: until then somebody may come for it, and for the
    /// rest of a recording.
    pub fn reports(&self) -> Vec<TerminalSessionReport> {
        let mut inner = self.lock();
        let now = Instant::now();
        inner.past.retain(|(forgotten_at, _)| *forgotten_at + REPORTED > now);
        let kept = |session_id: &TerminalSessionId| TerminalSessionReport {
            session_id: *session_id,
            end_reason: None,
            exit_status: None,
        };
        let past = inner.past.iter().map(|(_, report)| report.clone());
        inner.slots.keys().map(kept).chain(past).collect()
    }

    /// How many have processes.
    pub fn count(&self) -> usize {
        self.lock().slots.values().filter(|slot| slot.has_processes()).count()
    }

    /// No session is started any more, also none that is being started.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.stopping = true;
        inner.slots.retain(|_, slot| matches!(slot, Slot::Started { .. }));
    }

    /// Sessions of an owner that are being started are not.
    pub fn cancel_starting(&self, owner: Owner) {
        let cancelled = |slot: &Slot| matches!(slot, Slot::Starting { .. }) && slot.owner() == owner;
        self.lock().slots.retain(|_, slot| !cancelled(slot));
    }

    /// A session has no processes any more.
    fn mark_ended(&self, session_id: TerminalSessionId) {
        let surplus = {
            let mut inner = self.lock();
            inner.ended.push_back(session_id);
            let many = inner.ended.len() > MOST_ENDED;
            many.then(|| inner.ended.front().copied()).flatten()
        };
        if let Some(oldest) = surplus {
            self.forget(oldest);
        }
    }

    /// Drops an ended session's output. Its id stays used.
    pub fn forget(&self, session_id: TerminalSessionId) {
        let mut inner = self.lock();
        inner.ended.retain(|ended| *ended != session_id);
        let slot = inner.slots.remove(&session_id);
        if slot.is_some() {
            inner.used.insert(session_id);
        }
        if let Some(Slot::Started { session, .. }) = &slot {
            let (end_reason, exit_status) = session.read(|state| state.end_reported()).unzip();
            let report = TerminalSessionReport { session_id, end_reason, exit_status: exit_status.flatten() };
            inner.past.push_back((Instant::now(), report));
            if inner.past.len() > MOST_REPORTED {
                inner.past.pop_front();
            }
        }
        // Its task is aborted without the lock.
        drop(inner);
        drop(slot);
    }
}

impl Reservation {
    /// Takes the place for good, and runs the session.
    pub fn start(self, grant: &Grant, target: &PtyTarget, program: Program) -> Result<Arc<Session>, Refusal> {
        let limits = self.registry.limits;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let lifetime = Lifetime {
            expires_at: Instant::now() + limits.ttl.min(seconds(target.ttl_seconds)),
            idle: limits.idle.min(seconds(target.idle_seconds)),
        };
        let session =
            Session::new(self.session_id, grant.owner, grant.actor.clone(), target.recorded, &limits);
        let (running, registry) = (session.clone(), Arc::downgrade(&self.registry));
        let session_id = self.session_id;
        let mut inner = self.registry.lock();
        if !inner.is_reserved(session_id, self.number) {
            return Err(Refusal("session_ended"));
        }
        // Its task finds the place taken: the lock is held until then.
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            actor::run(running, program, lifetime).await;
            if let Some(registry) = registry.upgrade() {
                registry.mark_ended(session_id);
            }
            tokio::time::sleep(limits.grace).await;
            if let Some(registry) = registry.upgrade() {
                registry.forget(session_id);
            }
        }));
        inner.slots.insert(session_id, Slot::Started { session: session.clone(), _task: task });
        Ok(session)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        if inner.is_reserved(self.session_id, self.number) {
            inner.slots.remove(&self.session_id);
        }
    }
}

/// The last ids that were used.
#[derive(Default)]
struct UsedIds {
    ids: HashSet<TerminalSessionId>,
    in_order: VecDeque<TerminalSessionId>,
}

impl UsedIds {
    fn contains(&self, id: TerminalSessionId) -> bool {
        self.ids.contains(&id)
    }

    fn insert(&mut self, id: TerminalSessionId) {
        if self.ids.insert(id) {
            self.in_order.push_back(id);
        }
        if self.in_order.len() > MOST_USED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn used_ids_are_bounded_and_the_oldest_are_forgotten() {
        let mut used = UsedIds::default();
        let id = |number: usize| TerminalSessionId::from(Uuid::from_u128(number as u128));
        for number in 0..=MOST_USED {
            used.insert(id(number));
            used.insert(id(number));
        }
        assert_eq!((used.ids.len(), used.in_order.len()), (MOST_USED, MOST_USED));
        assert!(!used.contains(id(0)) && used.contains(id(1)) && used.contains(id(MOST_USED)));
    }
}
