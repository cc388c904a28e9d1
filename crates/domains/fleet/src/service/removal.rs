//! Nodes that are being removed are deleted when no work is left; what ended long ago is forgotten.

use chrono::TimeDelta;
use kernel::Failure;

use super::{by_itself, nodes::transition};
use crate::{Fleet, model::node::NodeEvent, store};

/// What is over is kept this long, for people who look into what happened.
const TOKENS_KEPT: TimeDelta = TimeDelta::days(30);
const CERTIFICATES_KEPT: TimeDelta = TimeDelta::days(90);
const TASKS_KEPT: TimeDelta = TimeDelta::days(90);

/// Deletes nodes that are being removed and have no work left. Their history and audit trail stay.
pub async fn nodes_delete(fleet: &Fleet, limit: i64) -> Result<usize, Failure> {
    let removable = {
        let mut read = fleet.db().read(&by_itself(fleet.db(), "find nodes to delete")).await?;
        store::nodes::removable(read.conn(), limit).await?
    };
    let mut deleted = 0;
    for node in removable {
        let permit = by_itself(fleet.db(), "a removed node has no work left");
        let mut tx = fleet.db().write(permit, "node.delete").await?;
        let Some(earlier) = store::nodes::lock(tx.conn(), node).await? else { continue };
        if earlier.after(NodeEvent::Delete).is_err()
            || !store::agent_tasks::open(tx.conn(), node).await?.is_empty()
        {
            tx.roll_back().await;
            continue;
        }
        let after = transition(&mut tx, node, NodeEvent::Delete, "no work is left").await?;
        store::nodes::forget(tx.conn(), node).await?;
        tx.record("node", node, Some(&earlier), Some(&after))?;
        tx.commit(None).await?;
        deleted += 1;
    }
    Ok(deleted)
}

/// Removes up to `limit` of each that ended long ago.
pub async fn tidy(fleet: &Fleet, limit: i64) -> Result<usize, Failure> {
    let now = fleet.db().ambient().now();
    let mut upkeep = fleet.db().upkeep("forget old tokens, certificates and tasks of nodes").await?;
    let tokens = store::tokens::forget(upkeep.conn(), now - TOKENS_KEPT, limit).await?;
    let certificates = store::certificates::forget(upkeep.conn(), now - CERTIFICATES_KEPT, limit).await?;
    let tasks = store::tasks::forget(upkeep.conn(), now - TASKS_KEPT, limit).await?;
    Ok(usize::try_from(tokens + certificates + tasks).unwrap_or(usize::MAX))
}
