//! Where records disagree: what was found, and how it is looked for. Every look is one statement, so that it sees
//! one moment, and answers a bounded number of rows. Nothing but `capacity_discrepancies` is ever written here.

mod consistency_queries;

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{AllocationId, DiscrepancyId, NodeId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::discrepancy::{Discrepancy, DiscrepancyKind, DiscrepancyState, Found};

pub use consistency_queries::*;

struct Row {
    id: Uuid,
    kind: DiscrepancyKind,
    subject: String,
    node_id: Option<Uuid>,
    allocation_id: Option<Uuid>,
    message: String,
    suggestion: String,
    state: DiscrepancyState,
    first_seen_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    resolved_at: Option<DateTime<Utc>>,
}

impl From<Row> for Discrepancy {
    fn from(row: Row) -> Self {
        Self {
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
        }
    }
}

pub async fn get(conn: &mut Connection, id: DiscrepancyId) -> Result<Option<Discrepancy>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: DiscrepancyKind", subject, node_id, allocation_id, message, suggestion,
             state AS "state: DiscrepancyState", first_seen_at, last_seen_at, resolved_at
         FROM capacity_discrepancies WHERE id = $1"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Discrepancy::from))
}

pub async fn list(
    conn: &mut Connection,
    kind: Option<DiscrepancyKind>,
    state: Option<DiscrepancyState>,
    page: &PageQuery,
) -> Result<Vec<Discrepancy>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: DiscrepancyKind", subject, node_id, allocation_id, message, suggestion,
             state AS "state: DiscrepancyState", first_seen_at, last_seen_at, resolved_at
         FROM capacity_discrepancies
         WHERE id > $1 AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR state = $4)
         ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
        kind.map(DiscrepancyKind::name),
        state.map(DiscrepancyState::name),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Discrepancy::from).collect())
}

/// Opens what is new and renews what is open already; answers the subjects of what is new (a row that was inserted
/// has no `xmax`).
pub async fn upsert(
    conn: &mut Connection,
    kind: DiscrepancyKind,
    found: &[(DiscrepancyId, &Found)],
    now: DateTime<Utc>,
) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"INSERT INTO capacity_discrepancies AS d (id, kind, subject, node_id, allocation_id, message, suggestion,
               first_seen_at, last_seen_at)
           SELECT f.id, $1, f.subject, f.node_id, f.allocation_id, f.message, $2, $3, $3
           FROM unnest($4::uuid[], $5::text[], $6::uuid[], $7::uuid[], $8::text[])
               AS f (id, subject, node_id, allocation_id, message)
           ORDER BY f.subject
           ON CONFLICT (kind, subject) WHERE state = 'open' DO UPDATE SET message = excluded.message,
               suggestion = excluded.suggestion, last_seen_at = excluded.last_seen_at
           RETURNING d.subject, d.xmax = 0 AS "is_new!""#,
        kind.name(),
        kind.suggestion(),
        now,
        &found.iter().map(|(id, _)| id.uuid()).collect::<Vec<Uuid>>(),
        &found.iter().map(|(_, f)| f.subject.clone()).collect::<Vec<String>>(),
        &found.iter().map(|(_, f)| f.node.map(NodeId::uuid)).collect::<Vec<_>>() as &[Option<Uuid>],
        &found.iter().map(|(_, f)| f.allocation.map(AllocationId::uuid)).collect::<Vec<_>>() as &[Option<Uuid>],
        &found.iter().map(|(_, f)| f.message.clone()).collect::<Vec<String>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().filter(|row| row.is_new).map(|row| row.subject).collect())
}

/// Resolves discrepancies that were not found again: everywhere, or on the compared nodes.
pub async fn resolve_missing(
    conn: &mut Connection,
    kind: DiscrepancyKind,
    seen: &[String],
    nodes: Option<&[NodeId]>,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let nodes: Option<Vec<Uuid>> = nodes.map(|nodes| nodes.iter().map(|node| node.uuid()).collect());
    let done = sqlx::query!(
        "UPDATE capacity_discrepancies SET state = 'resolved', resolved_at = $4
         WHERE state = 'open' AND kind = $1 AND subject <> ALL ($2) AND ($3::uuid[] IS NULL OR node_id = ANY ($3))",
        kind.name(),
        seen,
        nodes.as_deref(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// How many of each kind are open. Kinds of a newer release are its own to count.
pub async fn open(conn: &mut Connection) -> Result<Vec<(DiscrepancyKind, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT kind, count(*) AS "count!" FROM capacity_discrepancies WHERE state = 'open' GROUP BY kind"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().filter_map(|row| Some((row.kind.parse().ok()?, row.count))).collect())
}
