//! Every change of a node's state. Rows are only added.

use chrono::{DateTime, Utc};
use kernel::{Failure, ids::NodeId};
use lifecycle::Named as _;
use pg::{Actor, Connection, Origin};

use crate::model::node::{HistoryEntry, NodeState};

pub struct Step<'a> {
    pub node: NodeId,
    pub from: NodeState,
    pub to: NodeState,
    pub event: &'a str,
    pub reason: &'a str,
}

pub async fn insert(
    conn: &mut Connection,
    step: &Step<'_>,
    actor: Actor,
    origin: &Origin,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_history (node_id, at, from_state, to_state, event, reason, actor_kind, actor_id, correlation_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        step.node.uuid(),
        now,
        step.from.name(),
        step.to.name(),
        step.event,
        step.reason,
        actor.kind.name(),
        actor.id,
        origin.correlation_id.0,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    node: NodeId,
    before: i64,
    limit: i64,
) -> Result<Vec<HistoryEntry>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT seq, at, from_state AS "from_state: NodeState", to_state AS "to_state: NodeState", event, reason,
             actor_kind, actor_id, correlation_id
         FROM node_history WHERE node_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3"#,
        node.uuid(),
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let entries = rows.into_iter().map(|row| {
        Ok(HistoryEntry {
            seq: row.seq,
            at: row.at,
            from_state: row.from_state,
            to_state: row.to_state,
            event: row.event,
            reason: row.reason,
            actor_kind: row.actor_kind.parse()?,
            actor_id: row.actor_id,
            correlation_id: row.correlation_id,
        })
    });
    entries.collect()
}
