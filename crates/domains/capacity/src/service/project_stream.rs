//! Following all allocations of a project: first how each is that is not over, then each again when it has changed.
//! There is nothing to resume: who comes again is told how everything is.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use async_trait::async_trait;
use endpoint::{Followed, Looked, Sse, SseFrame};
use kernel::{
    Failure, PageQuery,
    ids::{AllocationId, ProjectId},
    page::Cursor,
};
use pg::{Permit, ReadTx, Wake};
use tokio::{sync::broadcast, time::Instant};
use uuid::Uuid;

use super::watching::{CHANNEL, LOOK_AGAIN};
use crate::{
    Capacity,
    model::allocation::{Allocation, AllocationView, Filter},
    store,
};

/// Notices of this long are looked at together: one question for many changes.
const GATHER: Duration = Duration::from_millis(200);
/// What notices were lost about is found after this time.
const LOOK_AT_ALL: Duration = Duration::from_secs(30);
/// Changes that are looked at one by one; after more, at everything.
const MOST_CHANGED: usize = 500;
/// Allocations that one stream shows.
const MOST_SHOWN: usize = 1000;

struct ProjectFollowed {
    capacity: Capacity,
    permit: Permit,
    project: ProjectId,
    notices: Option<broadcast::Receiver<pg::Notice>>,
    /// What the client was told of those that are not over.
    told: HashMap<AllocationId, AllocationView>,
    /// What to look at: some, or everything.
    changed: Option<BTreeSet<Uuid>>,
    all_seen_at: Instant,
}

/// How the allocations of a project are, as server-sent events named `allocation`.
pub fn follow(capacity: &Capacity, tx: ReadTx, project: ProjectId) -> Result<Sse, Failure> {
    let permit = tx.permit().clone();
    drop(tx);
    let seat = capacity.streams.seat(permit.actor().id.unwrap_or_default())?;
    let followed = ProjectFollowed {
        capacity: capacity.clone(),
        permit,
        project,
        notices: capacity.wake.as_ref().map(Wake::subscribe),
        told: HashMap::new(),
        changed: None,
        all_seen_at: Instant::now(),
    };
    Ok(endpoint::follow(seat, followed))
}

#[async_trait]
impl Followed for ProjectFollowed {
    async fn look(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<Looked, Failure> {
        match self.changed.replace(BTreeSet::new()) {
            None => self.look_at_all(frames).await?,
            Some(ids) if !ids.is_empty() => self.look_at(ids.into_iter().collect(), frames).await?,
            Some(_) => return Ok(Looked::Nothing),
        }
        Ok(Looked::Something)
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
                // Something was missed: look.
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

impl ProjectFollowed {
    async fn look_at(&mut self, ids: Vec<Uuid>, frames: &mut VecDeque<SseFrame>) -> Result<(), Failure> {
        let mut tx = self.capacity.db.read(&self.permit).await?;
        let found = store::allocations::among(tx.conn(), self.project, &ids).await?;
        drop(tx);
        found.into_iter().try_for_each(|allocation| self.push(allocation, frames))
    }

    async fn look_at_all(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<(), Failure> {
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
        drop(tx);
        let seen: BTreeSet<_> = live.iter().map(|allocation| allocation.id).collect();
        let gone = self.told.keys().filter(|id| !seen.contains(id)).map(|id| id.uuid()).collect::<Vec<_>>();
        live.into_iter().try_for_each(|allocation| self.push(allocation, frames))?;
        if gone.is_empty() { Ok(()) } else { self.look_at(gone, frames).await }
    }

    fn push(&mut self, allocation: Allocation, frames: &mut VecDeque<SseFrame>) -> Result<(), Failure> {
        let view = AllocationView::from(allocation);
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
