//! What is written about an allocation that people end or interrupt, besides its state; and slots that were left
//! uncleaned.

use chrono::{DateTime, Utc};
use fleet::api::SlotState;
use kernel::{
    Failure, Problem,
    ids::{AllocationId, SlotId},
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use super::allocations;
use crate::model::allocation::{Allocation, ReleaseCause};

/// What was changed, read again; nothing changed means a lost race.
pub(super) async fn reload_changed(
    tx: &mut WriteTx,
    before: &Allocation,
    changed: u64,
) -> Result<Allocation, Failure> {
    let now = allocations::get(tx.conn(), before.id).await?;
    let now = now.ok_or_else(|| Problem::not_found("allocation"))?;
    if changed == 0 {
        return Err(Problem::version_conflict(now.version).into());
    }
    Ok(now)
}

/// It was used until then only, though its end is noticed now.
pub async fn meter_closed_set(
    tx: &mut WriteTx,
    before: &Allocation,
    at: DateTime<Utc>,
) -> Result<Allocation, Failure> {
    let changed = sqlx::query!(
        "UPDATE allocations SET meter_closed_at = greatest($3, meter_opened_at), version = version + 1
         WHERE id = $1 AND version = $2 AND state = 'releasing'",
        before.id.uuid(),
        before.version,
        at,
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    reload_changed(tx, before, changed).await
}

/// Remembers who ended a launch.
pub async fn cause_set(
    tx: &mut WriteTx,
    before: &Allocation,
    cause: ReleaseCause,
) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    let changed = sqlx::query!(
        "UPDATE allocations SET release_cause = $3, updated_at = $4, version = version + 1
         WHERE id = $1 AND version = $2",
        before.id.uuid(),
        before.version,
        cause.name(),
        now,
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    reload_changed(tx, before, changed).await
}

pub async fn restart_order_set(
    tx: &mut WriteTx,
    before: &Allocation,
    order: &[u8],
) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    let changed = sqlx::query!(
        "UPDATE allocations SET restart_order = $3, updated_at = $4, version = version + 1
         WHERE id = $1 AND version = $2 AND state = 'active'",
        before.id.uuid(),
        before.version,
        order,
        now,
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    reload_changed(tx, before, changed).await
}

/// Whose a slot is, or was last.
pub struct Holder {
    pub allocation: AllocationId,
    pub live: bool,
}

pub async fn holder(conn: &mut Connection, slot: SlotId) -> Result<Option<Holder>, sqlx::Error> {
    let live = sqlx::query_scalar!(
        "SELECT allocation_id FROM capacity_claims WHERE slot_id = $1 AND freed_at IS NULL",
        slot.uuid()
    )
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(id) = live {
        return Ok(Some(Holder { allocation: id.into(), live: true }));
    }
    let last = sqlx::query_scalar!(
        "SELECT allocation_id FROM capacity_claims WHERE slot_id = $1 AND freed_at IS NOT NULL ORDER BY id DESC LIMIT 1",
        slot.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(last.map(|id| Holder { allocation: id.into(), live: false }))
}

/// Those of `slots` that could not be cleaned, held until the transaction ends; only such as nobody has had since
/// `allocation`.
pub async fn blocked(
    conn: &mut Connection,
    allocation: AllocationId,
    slots: &[SlotId],
) -> Result<Vec<SlotId>, sqlx::Error> {
    let slots: Vec<Uuid> = slots.iter().map(|slot| slot.uuid()).collect();
    let rows = sqlx::query_scalar!(
        "SELECT s.id FROM node_resource_slots s
         WHERE s.id = ANY ($2) AND s.state = 'cleanup_blocked'
            AND NOT EXISTS (SELECT FROM capacity_claims c
                WHERE c.slot_id = s.id AND c.freed_at IS NULL AND c.allocation_id <> $1)
            AND NOT EXISTS (SELECT FROM capacity_claims c
                WHERE c.slot_id = s.id AND c.freed_at IS NOT NULL AND c.id > (
                    SELECT max(own.id) FROM capacity_claims own WHERE own.allocation_id = $1))
         ORDER BY s.id FOR NO KEY UPDATE OF s",
        allocation.uuid(),
        &slots,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(SlotId::from).collect())
}

/// The state of a slot, held until the transaction ends.
pub async fn lock_slot(conn: &mut Connection, slot: SlotId) -> Result<SlotState, Failure> {
    let state = sqlx::query_scalar!(
        r#"SELECT state AS "state: SlotState" FROM node_resource_slots WHERE id = $1 FOR NO KEY UPDATE"#,
        slot.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(state.ok_or_else(|| Problem::not_found("slot"))?)
}

/// Whether a workflow of its own cleans slots of the node that the slot is part of.
pub async fn being_cleaned(conn: &mut Connection, slot: SlotId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM node_resource_slots s JOIN node_resource_slots o ON o.node_id = s.node_id
               JOIN saga_runs r ON r.subject = 'slot_' || replace(o.id::text, '-', '')
           WHERE s.id = $1 AND r.state IN ('running', 'undoing')) AS "cleaned!""#,
        slot.uuid()
    )
    .fetch_one(conn)
    .await
}
