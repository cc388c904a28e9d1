//! Looking at allocations, and waiting for them.

use std::time::Duration;

use fleet::api::nodes_simulated;
use kernel::{
    Failure, Page, PageQuery, Problem,
    ids::{AllocationId, NodeId, ProjectId},
};
use pg::{Connection, ReadTx};

use super::watching::allocation_watch;
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationState, AllocationView, Filter},
        history::History,
    },
    store,
};

pub async fn list(
    tx: &mut ReadTx,
    filter: Filter<'_>,
    page: &PageQuery,
) -> Result<Page<Allocation>, Failure> {
    let found = store::allocations::list(tx.conn(), filter, page).await?;
    Ok(page.page(found, |allocation| allocation.id.uuid()))
}

/// As its project sees them, with whether their machines are simulated.
pub async fn views(conn: &mut Connection, found: Vec<Allocation>) -> Result<Vec<AllocationView>, Failure> {
    let nodes: Vec<NodeId> = found.iter().map(|allocation| allocation.node_id).collect();
    let simulated = if nodes.is_empty() { Vec::new() } else { nodes_simulated(conn, &nodes).await? };
    let view = |allocation: Allocation| {
        let is_simulated = simulated.contains(&allocation.node_id);
        AllocationView::from(allocation).with_simulated(is_simulated)
    };
    Ok(found.into_iter().map(view).collect())
}

/// Any tenant's allocation, with what its workflows did: for the platform.
pub async fn with_timeline(
    tx: &mut ReadTx,
    id: AllocationId,
) -> Result<(Allocation, Vec<saga::TimelineEntry>), Failure> {
    let found = store::allocations::get(tx.conn(), id).await?;
    let allocation = found.ok_or_else(|| Problem::not_found("allocation"))?;
    let timeline = saga::timeline(tx.conn(), &allocation.subject()).await?;
    Ok((allocation, timeline))
}

pub async fn history(
    tx: &mut ReadTx,
    project: ProjectId,
    id: AllocationId,
    after: i64,
    limit: i64,
) -> Result<History, Failure> {
    store::allocations::of_project(tx.conn(), project, id).await?;
    let items = store::allocation_events::after(tx.conn(), id, after, limit).await?;
    let next_after = items.last().map_or(after, |last| last.seq);
    Ok(History { items, next_after })
}

/// What is waited for, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Until it is no longer in this state; without, until it is in one that lasts.
    pub past: Option<AllocationState>,
    pub patience: Duration,
}

impl Wait {
    fn is_met_by(self, allocation: &Allocation) -> bool {
        match self.past {
            // Nothing comes after the end.
            Some(past) => allocation.state != past || past.is_over(),
            None => !allocation.state.is_moving(),
        }
    }
}

/// The allocation as it is, or, with patience, as soon as what is waited for has come.
pub async fn get(
    capacity: &Capacity,
    mut tx: ReadTx,
    project: ProjectId,
    id: AllocationId,
    wait: Wait,
) -> Result<AllocationView, Failure> {
    let permit = tx.permit().clone();
    let deadline = tokio::time::Instant::now() + wait.patience;
    // Before the first look, so that no change falls between looking and waiting.
    let mut watch = allocation_watch(capacity, id);
    loop {
        let allocation = store::allocations::of_project(tx.conn(), project, id).await?;
        if wait.is_met_by(&allocation) || tokio::time::Instant::now() >= deadline {
            let simulated = nodes_simulated(tx.conn(), &[allocation.node_id]).await?;
            return Ok(AllocationView::from(allocation).with_simulated(!simulated.is_empty()));
        }
        // Nobody holds a connection while waiting.
        drop(tx);
        watch.wait_for_change(deadline).await;
        tx = capacity.db.read(&permit).await?;
    }
}
