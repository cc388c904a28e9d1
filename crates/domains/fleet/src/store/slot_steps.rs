//! Slots with somebody's work in them: which they are, and steps of many at once. Held in one order, slots before what is counted of them.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, SlotId};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::slot::SlotState;

fn uuids(slots: &[SlotId]) -> Vec<Uuid> {
    slots.iter().map(|id| id.uuid()).collect()
}

/// Holds the slots until the transaction ends; their states, of those that exist.
pub async fn lock(conn: &mut Connection, slots: &[SlotId]) -> Result<Vec<SlotState>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT state AS "state: SlotState" FROM node_resource_slots WHERE id = ANY ($1)
           ORDER BY node_id, slot_index FOR NO KEY UPDATE"#,
        &uuids(slots),
    )
    .fetch_all(conn)
    .await
}

/// Answers how many took the step. The reason is why cleaning failed, and gone when the slot is free.
pub async fn step(
    conn: &mut Connection,
    slots: &[SlotId],
    (from, to): (SlotState, SlotState),
    reason: Option<&str>,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE node_resource_slots SET state = $3, version = version + 1, updated_at = $5,
             cleanup_reason = CASE WHEN $3 = 'available' THEN NULL ELSE coalesce($4, cleanup_reason) END
         WHERE id = ANY ($1) AND state = $2",
        &uuids(slots),
        from.name(),
        to.name(),
        reason as Option<&str>,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Whether they work is not known any more.
pub async fn doubt(conn: &mut Connection, slots: &[SlotId], now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE node_resource_slots SET health = 'unknown', version = version + 1, updated_at = $2
         WHERE id = ANY ($1) AND health = 'healthy'",
        &uuids(slots),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Slots with somebody's work in them.
pub async fn occupied(conn: &mut Connection, node: NodeId) -> Result<Vec<SlotId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM node_resource_slots
         WHERE node_id = $1 AND state IN ('reserved', 'in_use', 'cleaning', 'cleanup_blocked') ORDER BY id",
        node.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(SlotId::from).collect())
}
