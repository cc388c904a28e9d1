//! The history of allocations: append-only, read in order.

use kernel::{
    Failure, Problem,
    ids::{AllocationId, ServiceAccountId, UserId},
};
use pg::{ActorKind, Connection, WriteTx};
use uuid::Uuid;

use crate::model::{
    allocation::AllocationState,
    history::{HistoryActor, HistoryEntry, HistoryKind},
};

/// An event that is no change of state: those are written with the change (`store/allocations::step`).
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    pub kind: HistoryKind,
    pub name: &'a str,
    /// Tenants read it: nothing of nodes and slots.
    pub reason: &'a str,
    pub duration_ms: Option<i64>,
}

/// Appends an event of whoever acts in this transaction. The allocation is held first, so that its events are seen
/// in the order of their numbers: who follows them by number misses none.
pub async fn append(tx: &mut WriteTx, allocation: AllocationId, event: NewEvent<'_>) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let (actor, correlation) = (tx.permit().actor(), tx.permit().origin().correlation_id.0);
    let written = sqlx::query!(
        "INSERT INTO allocation_events (allocation_id, org_id, at, kind, name, reason, duration_ms, actor_kind,
             actor_id, correlation_id)
         SELECT a.id, a.org_id, $2, $3, $4, $5, $6, $7, $8, $9
         FROM (SELECT id, org_id FROM allocations WHERE id = $1 FOR NO KEY UPDATE) a",
        allocation.uuid(),
        now,
        event.kind.name(),
        event.name,
        event.reason,
        event.duration_ms,
        actor.kind.name(),
        actor.id as Option<Uuid>,
        correlation,
    )
    .execute(tx.conn())
    .await?;
    if written.rows_affected() == 0 {
        return Err(Problem::not_found("allocation").into());
    }
    Ok(())
}

/// Events of an allocation after a number, oldest first.
pub async fn after(
    conn: &mut Connection,
    allocation: AllocationId,
    after: i64,
    limit: i64,
) -> Result<Vec<HistoryEntry>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT seq, at, kind AS "kind: HistoryKind", name, from_state AS "from_state: AllocationState",
             to_state AS "to_state: AllocationState", reason, duration_ms, actor_kind, actor_id
         FROM allocation_events WHERE allocation_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"#,
        allocation.uuid(),
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let entries = rows.into_iter().map(|row| {
        let id = row.actor_id;
        // Who acts on a node is nobody's business but the platform's.
        let (actor_kind, actor_id) = match row.actor_kind.parse()? {
            ActorKind::User => (HistoryActor::User, id.map(|id| UserId::from(id).to_string())),
            ActorKind::ServiceAccount => {
                (HistoryActor::ServiceAccount, id.map(|id| ServiceAccountId::from(id).to_string()))
            }
            ActorKind::Node | ActorKind::System | ActorKind::Anonymous => (HistoryActor::System, None),
        };
        Ok(HistoryEntry {
            seq: row.seq,
            allocation_id: allocation,
            at: row.at,
            kind: row.kind,
            name: row.name,
            from_state: row.from_state,
            to_state: row.to_state,
            reason: row.reason,
            duration_ms: row.duration_ms,
            actor_kind,
            actor_id,
        })
    });
    entries.collect()
}
