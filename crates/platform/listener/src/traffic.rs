//! What is under way on one connection, and since when nothing moved.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

/// How long an answer may wait for its client while the process stops.
pub const DRAIN_STALL: Duration = Duration::from_secs(2);

/// Written by the socket, the service and the bodies of one connection; read by what drives it.
pub(crate) struct Traffic(Mutex<State>);

struct State {
    /// Requests from their head to the end of their answer.
    requests: usize,
    idle_since: Instant,
    /// The socket took less than a piece since then.
    blocked_since: Option<Instant>,
    /// Answers that gave a piece which the peer has not taken.
    offered: HashMap<u64, Instant>,
    next_body: u64,
}

impl Traffic {
    pub fn new() -> Self {
        let state = State {
            requests: 0,
            idle_since: Instant::now(),
            blocked_since: None,
            offered: HashMap::new(),
            next_body: 0,
        };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn request_begins(&self) {
        self.lock().requests += 1;
    }

    pub fn request_ends(&self) {
        let mut state = self.lock();
        state.requests = state.requests.saturating_sub(1);
        state.idle_since = Instant::now();
    }

    pub fn body_begins(&self) -> u64 {
        let mut state = self.lock();
        state.next_body += 1;
        let id = state.next_body;
        state.offered.insert(id, Instant::now());
        id
    }

    /// The peer wants the next piece.
    pub fn body_taken(&self, id: u64) {
        self.lock().offered.remove(&id);
    }

    pub fn body_offered(&self, id: u64) {
        self.lock().offered.insert(id, Instant::now());
    }

    pub fn socket_blocked(&self) {
        self.lock().blocked_since.get_or_insert_with(Instant::now);
    }

    pub fn socket_moved(&self) {
        self.lock().blocked_since = None;
    }

    /// How long the client has not taken what waits for it.
    pub fn stalled_for(&self) -> Duration {
        let state = self.lock();
        let oldest = state.offered.values().min().copied().into_iter().chain(state.blocked_since).min();
        oldest.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How long there was no request.
    pub fn idle_for(&self) -> Duration {
        let state = self.lock();
        if state.requests > 0 { Duration::ZERO } else { state.idle_since.elapsed() }
    }
}
