//! Following all allocations of a project: first how each is that is not over, then each again when it has changed.
//! There is nothing to resume: who comes again is told how everything is.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use endpoint::SseFrame;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use kernel::{
    Failure, PageQuery,
    ids::{AllocationId, ProjectId},
    page::Cursor,
};
use pg::{Permit, ReadTx, Wake};
use tokio::{sync::broadcast, time::Instant};
use uuid::Uuid;

use super::watching::{CHANNEL, COME_AGAIN, HEARTBEAT, LIFETIME, LOOK_AGAIN, Seat};
use crate::{
    Capacity,
    model::allocation::{Allocation, AllocationState, AllocationView, Filter},
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

struct Following {
    capacity: Capacity,
    permit: Permit,
    project: ProjectId,
    notices: Option<broadcast::Receiver<pg::Notice>>,
    /// What the client was told of those that are not over.
    told: HashMap<AllocationId, AllocationView>,
    /// What to look at: some, or everything.
    changed: Option<BTreeSet<Uuid>>,
    frames: VecDeque<SseFrame>,
    all_seen_at: Instant,
    ends_at: Instant,
    next_heartbeat: Instant,
    _seat: Seat,
}

/// How the allocations of a project are, as server-sent events named `allocation`.
pub fn follow(
    capacity: &Capacity,
    tx: ReadTx,
    project: ProjectId,
) -> Result<BoxStream<'static, Result<SseFrame, Failure>>, Failure> {
    let permit = tx.permit().clone();
    drop(tx);
    let now = Instant::now();
    let following = Following {
        capacity: capacity.clone(),
        _seat: capacity.streams.seat(permit.actor().id.unwrap_or_default())?,
        permit,
        project,
        notices: capacity.wake.as_ref().map(Wake::subscribe),
        told: HashMap::new(),
        changed: None,
        frames: VecDeque::from([SseFrame::retry_after(COME_AGAIN)]),
        all_seen_at: now,
        ends_at: now + LIFETIME,
        next_heartbeat: now + HEARTBEAT,
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
            if now >= self.ends_at {
                return Ok(None);
            }
            if now >= self.next_heartbeat {
                self.frames.push_back(SseFrame::heartbeat());
                continue;
            }
            match self.changed.replace(BTreeSet::new()) {
                None => self.look_at_all().await?,
                Some(ids) if !ids.is_empty() => self.look_at(ids.into_iter().collect()).await?,
                Some(_) => self.wait().await,
            }
        }
    }

    async fn look_at(&mut self, ids: Vec<Uuid>) -> Result<(), Failure> {
        let mut tx = self.capacity.db.read(&self.permit).await?;
        let found = store::allocations::among(tx.conn(), self.project, &ids).await?;
        drop(tx);
        found.into_iter().try_for_each(|allocation| self.push(allocation))
    }

    async fn look_at_all(&mut self) -> Result<(), Failure> {
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
        live.into_iter().try_for_each(|allocation| self.push(allocation))?;
        if gone.is_empty() { Ok(()) } else { self.look_at(gone).await }
    }

    fn push(&mut self, allocation: Allocation) -> Result<(), Failure> {
        let view = AllocationView::from(allocation);
        let over = AllocationState::parse(&view.state).is_some_and(AllocationState::is_over);
        if self.told.get(&view.id) == Some(&view) {
            return Ok(());
        }
        self.frames.push_back(SseFrame::state("allocation", &view)?);
        if over || (self.told.len() >= MOST_SHOWN && !self.told.contains_key(&view.id)) {
            self.told.remove(&view.id);
        } else {
            self.told.insert(view.id, view);
        }
        Ok(())
    }

    /// Until something may have changed, or it is time for a heartbeat or the end.
    async fn wait(&mut self) {
        let deadline = self.ends_at.min(self.next_heartbeat);
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
