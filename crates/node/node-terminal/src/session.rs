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
    state::{AttachmentId, Next, Role, Rules, State, Violation},
};

pub(crate) struct Session {
    pub id: TerminalSessionId,
    pub owner: Owner,
    pub actor: String,
    state: Mutex<State>,
    /// There is more to send to streams.
    output: watch::Sender<()>,
    /// The PTY took input.
    input: watch::Sender<()>,
    /// The session or the place of its writer has ended.
    ending: watch::Sender<()>,
    /// For the task of the session.
    wake: Notify,
}

impl Session {
    pub fn new(
        id: TerminalSessionId,
        owner: Owner,
        actor: String,
        recorded: bool,
        limits: &Limits,
    ) -> Arc<Self> {
        let state = Mutex::new(State::new(Rules {
            scrollback: limits.scrollback,
            ring: limits.ring,
            grace: limits.grace,
            most_attached: limits.attached_per_session,
            recorded,
        }));
        let [output, input, ending] = std::array::from_fn(|_| watch::Sender::new(()));
        Arc::new(Self { id, owner, actor, state, output, input, ending, wake: Notify::new() })
    }

    /// Never held across an await, nor while another lock is taken.
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.lock())
    }

    /// The end of something, which all streams are to see.
    pub fn end(&self, end: impl FnOnce(&mut State)) {
        end(&mut self.lock());
        for signal in [&self.output, &self.input, &self.ending] {
            signal.send_replace(());
        }
    }

    /// Output, by the task.
    pub fn publish(&self, bytes: &[u8]) {
        self.lock().push_output(bytes);
        self.output.send_replace(());
    }

    /// Input was taken or given up, by the task.
    pub fn take_input(&self, take: impl FnOnce(&mut State)) {
        take(&mut self.lock());
        self.input.send_replace(());
    }

    /// What a stream sends next.
    pub fn next_output(&self, seat: &Seat) -> Next {
        self.lock().next_output(seat.id, seat.role)
    }

    /// What a gateway says of the output that it was sent. The task is woken only if it waits for that, and watchers only if
    /// they see more now.
    pub fn note_progress(
        &self,
        note: impl FnOnce(&mut State) -> Result<bool, Violation>,
    ) -> Result<(), Violation> {
        let (wakes_task, wakes_watchers) = {
            let mut state = self.lock();
            let limit = state.watchers_limit();
            (note(&mut state)?, state.watchers_limit() > limit)
        };
        if wakes_task {
            self.wake.notify_one();
        }
        if wakes_watchers {
            self.output.send_replace(());
        }
        Ok(())
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

    /// Told when there is more to send.
    pub fn subscribe_output(&self) -> watch::Receiver<()> {
        self.output.subscribe()
    }

    /// Told when input was taken.
    pub fn subscribe_input(&self) -> watch::Receiver<()> {
        self.input.subscribe()
    }

    pub fn want_end(&self, reason: CloseReason) {
        self.request(|state| state.want_end(reason));
    }

    /// Waits until an end is so.
    pub async fn wait_until(&self, mut holds: impl FnMut(&State) -> bool) {
        let mut ending = self.ending.subscribe();
        loop {
            ending.mark_unchanged();
            if self.read(&mut holds) {
                return;
            }
            // It cannot be closed: the sender is in this session.
            let _ = ending.changed().await;
        }
    }

    pub fn join(self: &Arc<Self>, access: PtyAccess, recorded: bool) -> Result<Seat, Refusal> {
        let (id, role) = self.request(|state| state.join(access, recorded))?;
        if role == Role::Writer {
            // A writer that was replaced learns it.
            self.end(|_| {});
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
        // A watcher may have waited for what this one was to see.
        self.session.output.send_replace(());
    }
}
