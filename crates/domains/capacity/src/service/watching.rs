//! The stream of one allocation: woken by the database, without a connection while it is idle.

use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use endpoint::{SourceState, Sse, SseFrame, StreamSource, Streams};
use kernel::{
    Failure,
    ids::{AllocationId, ProjectId},
};
use pg::{Permit, ReadTx, Watch};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Capacity,
    model::{
        allocation::AllocationState,
        history::{HistoryEntry, HistoryKind},
    },
    store,
};

pub(super) const CHANNEL: &str = "gpuaas_allocations";
/// A change whose notification was lost is found after this time.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Streams that one caller may have open.
const MOST_STREAMS_OF_ONE: usize = 16;
const BATCH: i64 = 200;

/// The streams of events that are open.
pub(crate) fn streams() -> Streams {
    let suggestion = "Close a stream, or list the events instead.";
    Streams::new(MOST_STREAMS_OF_ONE, ("Too many event streams are open.", suggestion))
}

/// Waits for changes of one allocation, from now on.
pub(super) fn allocation_watch(capacity: &Capacity, allocation: AllocationId) -> Watch {
    Watch::new(capacity.wake.as_ref(), CHANNEL, allocation.uuid().to_string(), LOOK_AGAIN)
}

/// The position of the stream of one allocation.
struct AllocationSource {
    capacity: Capacity,
    permit: Permit,
    allocation: AllocationId,
    after: i64,
    watch: Watch,
}

/// The events of an allocation after a sequence number: past ones, then new ones, as server-sent events. Ends
/// with the allocation, or after the lifetime of a stream; the client reconnects with the last number that it saw.
pub async fn follow(
    capacity: &Capacity,
    mut tx: ReadTx,
    project: ProjectId,
    allocation: AllocationId,
    after: i64,
) -> Result<Sse, Failure> {
    let watch = allocation_watch(capacity, allocation);
    store::allocations::of_project(tx.conn(), project, allocation).await?;
    let permit = tx.permit().clone();
    let guard = capacity.streams.stream_open(permit.actor().id.unwrap_or_default())?;
    let source = AllocationSource { capacity: capacity.clone(), permit, allocation, after, watch };
    Ok(endpoint::follow(guard, source))
}

#[async_trait]
impl StreamSource for AllocationSource {
    async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure> {
        let mut tx = self.capacity.db.read(&self.permit).await?;
        // Read the state first: an ended allocation has no further events.
        let found = store::allocations::get(tx.conn(), self.allocation).await?;
        let events = store::allocation_events::after(tx.conn(), self.allocation, self.after, BATCH).await?;
        drop(tx);
        for event in &events {
            self.after = event.seq;
            frames.push_back(SseFrame::event(event.seq, "allocation", event)?);
        }
        // Also for a client that reconnects after the end.
        let over = if events.is_empty() {
            found.is_none_or(|allocation| allocation.state.is_over())
        } else {
            events.iter().any(ends)
        };
        if over {
            // The client must not reconnect.
            let end = json!({ "allocation_id": self.allocation, "over": true });
            frames.push_back(SseFrame::event(self.after, "end", &end)?);
            return Ok(SourceState::Ended);
        }
        Ok(if events.is_empty() { SourceState::Idle } else { SourceState::New })
    }

    async fn wait(&mut self, deadline: Instant) {
        self.watch.wait_for_change(deadline).await;
    }
}

/// Nothing comes after it.
fn ends(event: &HistoryEntry) -> bool {
    event.kind == HistoryKind::State && event.to_state.is_some_and(AllocationState::is_over)
}
