//! Nodes that stopped reporting become `offline`.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::Failure;

use super::{
    by_itself,
    nodes::{silence, transition},
};
use crate::{Fleet, model::node::NodeEvent, store};

/// Marks up to `limit` nodes of which nobody has heard for as long as policy says. Nobody could report to a control
/// plane that was down: the silence counts from `started_at` at the earliest.
pub async fn nodes_lose_contact(
    fleet: &Fleet,
    started_at: DateTime<Utc>,
    limit: i64,
) -> Result<usize, Failure> {
    let (now, silence) = (fleet.db().ambient().now(), silence(fleet).await?);
    let before = now - silence;
    if before < started_at {
        return Ok(0);
    }
    let silent = {
        let mut read = fleet.db().read(&by_itself(fleet.db(), "find nodes that do not report")).await?;
        store::contacts::silent(read.conn(), before, limit).await?
    };
    let mut marked = 0;
    for node in silent {
        let permit = by_itself(fleet.db(), "a node does not report");
        let mut tx = fleet.db().write(permit, "node.lose_contact").await?;
        let Some(earlier) = store::nodes::lock(tx.conn(), node).await? else { continue };
        let last_seen = store::contacts::last_seen(tx.conn(), node).await?;
        // It reported, or somebody moved it, in this moment.
        if last_seen.is_some_and(|at| at >= before) || earlier.after(NodeEvent::LoseContact).is_err() {
            tx.roll_back().await;
            continue;
        }
        let reason = format!("no report for {} seconds", whole_seconds(now, last_seen, silence));
        let after = transition(&mut tx, node, NodeEvent::LoseContact, &reason).await?;
        tx.record("node", node, Some(&earlier), Some(&after))?;
        tx.commit(None).await?;
        marked += 1;
    }
    Ok(marked)
}

fn whole_seconds(now: DateTime<Utc>, last_seen: Option<DateTime<Utc>>, silence: TimeDelta) -> i64 {
    last_seen.map_or(silence, |at| now - at).num_seconds()
}
