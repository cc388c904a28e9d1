//! Following allocations: woken by the database, never holding a connection while nothing happens.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use endpoint::SseFrame;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, ProjectId},
};
use pg::{Permit, ReadTx, Wake};
use serde_json::json;
use tokio::{sync::broadcast, time::Instant};
use uuid::Uuid;

use crate::{Capacity, model::history::HistoryEntry, store};

pub(super) const CHANNEL: &str = "gpuaas_allocations";
/// A change whose notification was lost is found after this time.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Waits for changes of one allocation.
pub struct Watcher {
    notices: Option<broadcast::Receiver<pg::Notice>>,
    allocation: String,
}

impl Watcher {
    /// Notices everything from now on.
    pub fn of(capacity: &Capacity, allocation: AllocationId) -> Self {
        let notices = capacity.wake.as_ref().map(Wake::subscribe);
        Self { notices, allocation: allocation.uuid().to_string() }
    }

    /// Until something was written about it, or may have been, or the time is over.
    pub async fn changed_before(&mut self, deadline: Instant) {
        let deadline = deadline.min(Instant::now() + LOOK_AGAIN);
        let Some(notices) = &mut self.notices else { return tokio::time::sleep_until(deadline).await };
        let changed = async {
            loop {
                match notices.recv().await {
                    Ok(notice) if notice.channel == CHANNEL && notice.payload == self.allocation => return,
                    Ok(_) => {}
                    // Something was missed: look.
                    Err(broadcast::error::RecvError::Lagged(_)) => return,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let _ = tokio::time::timeout_at(deadline, changed).await;
    }
}

/// Streams that one process keeps open, and one caller.
const MOST_STREAMS: usize = 2048;
const MOST_STREAMS_OF_ONE: usize = 16;
/// A stream ends after this time: what its caller may see is then decided anew.
pub(super) const LIFETIME: Duration = Duration::from_secs(5 * 60);
pub(super) const COME_AGAIN: Duration = Duration::from_secs(1);
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
const BATCH: i64 = 200;

/// The streams that are open, by caller. Cheap to clone.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<HashMap<Uuid, usize>>>);

/// A stream's place among those that are open, given back when the stream is gone.
pub(super) struct Seat {
    streams: Streams,
    caller: Uuid,
}

impl Streams {
    pub(super) fn seat(&self, caller: Uuid) -> Result<Seat, Problem> {
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&caller).copied().unwrap_or(0));
        if all >= MOST_STREAMS || own >= MOST_STREAMS_OF_ONE {
            let text = "Too many streams of events are open.";
            let problem = Problem::new(Code::RateLimitExceeded, text).detail("limit", MOST_STREAMS_OF_ONE);
            return Err(problem.suggest("Close one, or read the events without a stream.").retry_after(5));
        }
        *open.entry(caller).or_default() += 1;
        drop(open);
        Ok(Seat { streams: self.clone(), caller })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, usize>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

/// One stream on its way: frames that wait to be taken, and where to look for more.
struct Following {
    capacity: Capacity,
    permit: Permit,
    allocation: AllocationId,
    after: i64,
    frames: VecDeque<SseFrame>,
    watcher: Watcher,
    /// The allocation is over: nothing more will come.
    over: bool,
    ends_at: Instant,
    next_heartbeat: Instant,
    _seat: Seat,
}

/// The events of an allocation after a number: those that were, then those that come, as server-sent events. Ends
/// when the allocation does, or its time is over; the client comes again with the last number that it saw.
pub async fn follow(
    capacity: &Capacity,
    mut tx: ReadTx,
    project: ProjectId,
    allocation: AllocationId,
    after: i64,
) -> Result<BoxStream<'static, Result<SseFrame, Failure>>, Failure> {
    let watcher = Watcher::of(capacity, allocation);
    store::allocations::of_project(tx.conn(), project, allocation).await?;
    let permit = tx.permit().clone();
    let seat = capacity.streams.seat(permit.actor().id.unwrap_or_default())?;
    let now = Instant::now();
    let following = Following {
        capacity: capacity.clone(),
        permit,
        allocation,
        after,
        frames: VecDeque::from([SseFrame::retry_after(COME_AGAIN)]),
        watcher,
        over: false,
        ends_at: now + LIFETIME,
        next_heartbeat: now + HEARTBEAT,
        _seat: seat,
    };
    Ok(stream::try_unfold(following, async |mut following| {
        let frame = following.next().await?;
        Ok(frame.map(|frame| (frame, following)))
    })
    .boxed())
}

impl Following {
    async fn next(&mut self) -> Result<Option<SseFrame>, Failure> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.next_heartbeat = Instant::now() + HEARTBEAT;
                return Ok(Some(frame));
            }
            let now = Instant::now();
            if self.over || now >= self.ends_at {
                return Ok(None);
            }
            if now >= self.next_heartbeat {
                self.frames.push_back(SseFrame::heartbeat());
                continue;
            }
            if !self.look().await? {
                self.watcher.changed_before(self.ends_at.min(self.next_heartbeat)).await;
            }
        }
    }

    /// Whether something had happened.
    async fn look(&mut self) -> Result<bool, Failure> {
        let mut tx = self.capacity.db.read(&self.permit).await?;
        // The state first: of an allocation that is over, all events are there.
        let found = store::allocations::get(tx.conn(), self.allocation).await?;
        let events = store::allocation_events::after(tx.conn(), self.allocation, self.after, BATCH).await?;
        if events.is_empty() {
            // Somebody who has seen the end already came again.
            if found.is_none_or(|allocation| allocation.state.is_over()) {
                self.end()?;
            }
            return Ok(self.over);
        }
        drop(tx);
        for event in &events {
            self.after = event.seq;
            self.frames.push_back(SseFrame::event(event.seq, "allocation", event)?);
        }
        if events.iter().any(ends) {
            self.end()?;
        }
        Ok(true)
    }

    /// Tells the client not to come again.
    fn end(&mut self) -> Result<(), Failure> {
        let over = json!({ "allocation_id": self.allocation, "over": true });
        self.frames.push_back(SseFrame::event(self.after, "end", &over)?);
        self.over = true;
        Ok(())
    }
}

/// Nothing comes after it.
fn ends(event: &HistoryEntry) -> bool {
    event.kind == "state" && matches!(event.to_state.as_deref(), Some("released" | "failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_so_many_streams_and_gets_places_back() {
        let (streams, caller) = (Streams::default(), Uuid::from_u128(1));
        let mut seats: Vec<Seat> = (0..MOST_STREAMS_OF_ONE).map(|_| streams.seat(caller).unwrap()).collect();
        assert_eq!(streams.seat(caller).map(drop).unwrap_err().code, Code::RateLimitExceeded);
        assert!(streams.seat(Uuid::from_u128(2)).is_ok());
        seats.pop();
        assert!(streams.seat(caller).is_ok());
        drop(seats);
        assert!(streams.lock().is_empty());
    }
}
