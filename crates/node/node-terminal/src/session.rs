//! One session as its streams and its task share it.

use std::sync::{Arc, Mutex, MutexGuard};

use kernel::ids::TerminalSessionId;
use node_proto::grant::{Owner, PtyAccess};
use node_tunnel::{Refusal, frame::CloseReason};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    Limits,
    state::{AttachmentId, Role, State},
};

pub(crate) struct Session {
    pub id: TerminalSessionId,
    pub owner: Owner,
    pub actor: String,
    state: Mutex<State>,
    /// For streams: something has changed.
    changed: watch::Sender<()>,
    /// For the task of the session.
    wake: Notify,
}

impl Session {
    pub fn new(id: TerminalSessionId, owner: Owner, actor: String, limits: &Limits) -> Arc<Self> {
        let state = State::new(limits.ring, limits.grace, limits.attached_per_session);
        let state = Mutex::new(state);
        Arc::new(Self { id, owner, actor, state, changed: watch::Sender::new(()), wake: Notify::new() })
    }

    /// Never held across an await, nor while another lock is taken.
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.lock())
    }

    /// A change by the task, which streams are to see.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.send_replace(());
        changed
    }

    /// A change by a stream, which the task is to see.
    pub fn request<T>(&self, request: impl FnOnce(&mut State) -> T) -> T {
        let requested = request(&mut self.lock());
        self.wake.notify_one();
        requested
    }

    /// A change which nobody else waits for.
    pub fn update<T>(&self, update: impl FnOnce(&mut State) -> T) -> T {
        update(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub fn want_end(&self, reason: CloseReason) {
        self.request(|state| state.want_end(reason));
    }

    /// Waits until the state is so.
    pub async fn wait_until(&self, mut holds: impl FnMut(&State) -> bool) {
        let mut changed = self.subscribe();
        loop {
            changed.mark_unchanged();
            if self.read(&mut holds) {
                return;
            }
            // It cannot be closed: the sender is in this session.
            let _ = changed.changed().await;
        }
    }

    pub fn join(self: &Arc<Self>, access: PtyAccess) -> Result<Seat, Refusal> {
        let (id, role) = self.request(|state| state.join(access))?;
        if role == Role::Writer {
            // A writer that was replaced learns it.
            self.changed.send_replace(());
        }
        Ok(Seat { session: self.clone(), id, role, on_purpose: false })
    }
}

/// A stream's place in a session. Dropped, it is left.
pub(crate) struct Seat {
    pub session: Arc<Session>,
    pub id: AttachmentId,
    pub role: Role,
    /// Leaves on purpose: nothing need be kept for it.
    pub on_purpose: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.session.request(|state| state.leave(self.id, self.on_purpose, Instant::now()));
    }
}
