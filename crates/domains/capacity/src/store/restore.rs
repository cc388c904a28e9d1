//! What was decided about differences after a restore.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{AllocationId, DiscrepancyId, NodeId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    discrepancy::{Discrepancy, DiscrepancyKind, DiscrepancyState},
    restore::{Decision, RestoreDifference},
};

/// Open differences, and how many of them nobody has decided about.
pub async fn counts(conn: &mut Connection) -> Result<(i64, i64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "open!", count(*) FILTER (WHERE r.discrepancy_id IS NULL) AS "undecided!"
           FROM capacity_discrepancies d LEFT JOIN restore_decisions r ON r.discrepancy_id = d.id
           WHERE d.state = 'open'"#
    )
    .fetch_one(conn)
    .await?;
    Ok((row.open, row.undecided))
}

/// Open differences with what was decided about them.
pub async fn list(conn: &mut Connection, page: &PageQuery) -> Result<Vec<RestoreDifference>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT d.id, d.kind AS "kind: DiscrepancyKind", d.subject, d.node_id, d.allocation_id, d.message, d.suggestion,
               d.state AS "state: DiscrepancyState",
               d.first_seen_at, d.last_seen_at, d.resolved_at, r.decision AS "decision?: Decision", r.note AS "note?",
               r.decided_at AS "decided_at?"
           FROM capacity_discrepancies d LEFT JOIN restore_decisions r ON r.discrepancy_id = d.id
           WHERE d.state = 'open' AND d.id > $1 ORDER BY d.id LIMIT $2"#,
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    let difference = rows.into_iter().map(|row| RestoreDifference {
        discrepancy: Discrepancy {
            id: DiscrepancyId::from(row.id),
            kind: row.kind,
            subject: row.subject,
            node_id: row.node_id.map(NodeId::from),
            allocation_id: row.allocation_id.map(AllocationId::from),
            message: row.message,
            suggestion: row.suggestion,
            state: row.state,
            first_seen_at: row.first_seen_at,
            last_seen_at: row.last_seen_at,
            resolved_at: row.resolved_at,
        },
        decision: row.decision,
        note: row.note,
        decided_at: row.decided_at,
    });
    Ok(difference.collect())
}

/// The last word counts.
pub async fn decide(
    conn: &mut Connection,
    id: DiscrepancyId,
    decision: Decision,
    note: &str,
    by: Option<Uuid>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO restore_decisions (discrepancy_id, decision, note, decided_by, decided_at)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (discrepancy_id) DO UPDATE SET decision = excluded.decision, note = excluded.note,
             decided_by = excluded.decided_by, decided_at = excluded.decided_at",
        id.uuid(),
        decision.name(),
        note,
        by as Option<Uuid>,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Allocations that are to end, with the operators' notes.
pub async fn to_end(conn: &mut Connection) -> Result<Vec<(AllocationId, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT d.allocation_id AS "allocation_id!", r.note FROM restore_decisions r
           JOIN capacity_discrepancies d ON d.id = r.discrepancy_id
           WHERE r.decision = 'end' AND d.state = 'open' AND d.allocation_id IS NOT NULL ORDER BY d.allocation_id"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (AllocationId::from(row.allocation_id), row.note)).collect())
}
