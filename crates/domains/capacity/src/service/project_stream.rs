//! The stream of all allocations of a project: first every live one, then each one that has changed.
//! There is nothing to resume: a client that reconnects gets the current state of all.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use async_trait::async_trait;
use endpoint::{SourceState, Sse, SseFrame, StreamSource};
use kernel::{
    Failure, PageQuery,
    ids::{AllocationId, ProjectId},
    page::Cursor,
};
use pg::{Permit, ReadTx, Wake};
use tokio::{sync::broadcast, time::Instant};
use uuid::Uuid;

use super::{
    allocations::views,
    watching::{CHANNEL, LOOK_AGAIN},
};
use crate::{
    Capacity,
    model::allocation::{AllocationView, Filter},
    store,
};

/// Notices of this period are handled together: one query for many changes.
const GATHER: Duration = Duration::from_millis(200);
/// Changes whose notices were lost are found after this time.
const LOOK_AT_ALL: Duration = Duration::from_secs(30);
/// Up to so many changed allocations are read by id; beyond that, all are read.
const MOST_CHANGED: usize = 500;
/// Allocations that one stream shows.
const MOST_SHOWN: usize = 1000;

struct ProjectSource {
    capacity: Capacity,
    permit: Permit,
    project: ProjectId,
    notices: Option<broadcast::Receiver<pg::Notice>>,
    /// What was sent to the client about live allocations.
    told: HashMap<AllocationId, AllocationView>,
    /// What to read: some allocations, or all.
    changed: Option<BTreeSet<Uuid>>,
    all_seen_at: Instant,
}

/// The allocations of a project, as server-sent events named `allocation`.
pub fn follow(capacity: &Capacity, tx: ReadTx, project: ProjectId) -> Result<Sse, Failure> {
    let permit = tx.permit().clone();
    drop(tx);
    let guard = capacity.streams.stream_open(permit.actor().id.unwrap_or_default())?;
    let source = ProjectSource {
        capacity: capacity.clone(),
        permit,
        project,
        notices: capacity.wake.as_ref().map(Wake::subscribe),
        told: HashMap::new(),
        changed: None,
        all_seen_at: Instant::now(),
    };
    Ok(endpoint::follow(guard, source))
}

#[async_trait]
impl StreamSource for ProjectSource {
    async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure> {
        match self.changed.replace(BTreeSet::new()) {
            None => self.allocations_read_all(frames).await?,
            Some(ids) if !ids.is_empty() => self.allocations_read(ids.into_iter().collect(), frames).await?,
            Some(_) => return Ok(SourceState::Idle),
        }
        Ok(SourceState::New)
    }

    async fn wait(&mut self, deadline: Instant) {
        let Some(notices) = &mut self.notices else {
            tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_AGAIN)).await;
            self.changed = None;
            return;
        };
        let changed = self.changed.get_or_insert_default();
        let all_at = self.all_seen_at + LOOK_AT_ALL;
        let mut until = deadline.min(all_at);
        loop {
            match tokio::time::timeout_at(until, notices.recv()).await {
                Ok(Ok(notice)) if notice.channel == CHANNEL => {
                    if changed.is_empty() {
                        until = until.min(Instant::now() + GATHER);
                    }
                    changed.extend(notice.payload.parse::<Uuid>());
                    if changed.len() > MOST_CHANGED {
                        self.changed = None;
                        return;
                    }
                }
                Ok(Ok(_)) => {}
                // Notices were missed: read all.
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    self.changed = None;
                    return;
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return tokio::time::sleep_until(until).await,
                Err(_) => break,
            }
        }
        if Instant::now() >= all_at {
            self.changed = None;
        }
    }
}

impl ProjectSource {
    async fn allocations_read(
        &mut self,
        ids: Vec<Uuid>,
        frames: &mut VecDeque<SseFrame>,
    ) -> Result<(), Failure> {
        let mut tx = self.capacity.db.read(&self.permit).await?;
        let found = store::allocations::among(tx.conn(), self.project, &ids).await?;
        let found = views(tx.conn(), found).await?;
        drop(tx);
        found.into_iter().try_for_each(|view| self.push(view, frames))
    }

    async fn allocations_read_all(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<(), Failure> {
        self.all_seen_at = Instant::now();
        let mut tx = self.capacity.db.read(&self.permit).await?;
        let filter = Filter { project: Some(self.project), live: true, ..Filter::default() };
        let (mut page, mut live) = (PageQuery::default(), Vec::new());
        loop {
            let found = store::allocations::list(tx.conn(), filter, &page).await?;
            let more = i64::try_from(found.len())? >= page.limit();
            page.cursor = found.last().map(|last| Cursor(last.id.uuid()));
            live.extend(found);
            if !more || live.len() >= MOST_SHOWN {
                break;
            }
        }
        let live = views(tx.conn(), live).await?;
        drop(tx);
        let seen: BTreeSet<_> = live.iter().map(|allocation| allocation.id).collect();
        let gone = self.told.keys().filter(|id| !seen.contains(id)).map(|id| id.uuid()).collect::<Vec<_>>();
        live.into_iter().try_for_each(|view| self.push(view, frames))?;
        if gone.is_empty() { Ok(()) } else { self.allocations_read(gone, frames).await }
    }

    fn push(&mut self, view: AllocationView, frames: &mut VecDeque<SseFrame>) -> Result<(), Failure> {
        let over = view.state.is_over();
        if self.told.get(&view.id) == Some(&view) {
            return Ok(());
        }
        frames.push_back(SseFrame::state("allocation", &view)?);
        if over || (self.told.len() >= MOST_SHOWN && !self.told.contains_key(&view.id)) {
            self.told.remove(&view.id);
        } else {
            self.told.insert(view.id, view);
        }
        Ok(())
    }
}
