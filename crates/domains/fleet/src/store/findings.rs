//! Health findings.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery,
    ids::{FindingId, NodeId, SlotId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};
use serde_json::Value;
use uuid::Uuid;

use crate::model::{
    finding::{Finding, FindingState, Report},
    health_rule::HealthAction,
};

struct Row {
    id: Uuid,
    node_id: Uuid,
    slot_id: Option<Uuid>,
    code: String,
    subject: String,
    message: String,
    evidence: Value,
    action: HealthAction,
    state: FindingState,
    seen: i64,
    first_seen_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    note: String,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Finding {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            node_id: row.node_id.into(),
            slot_id: row.slot_id.map(SlotId::from),
            code: row.code,
            subject: row.subject,
            message: row.message,
            evidence: row.evidence,
            action: row.action,
            state: row.state,
            seen: row.seen,
            first_seen_at: row.first_seen_at,
            last_seen_at: row.last_seen_at,
            note: row.note,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Counts what is known already, in one statement, and says which that was.
pub async fn seen_again(
    conn: &mut Connection,
    node: NodeId,
    reports: &[Report],
) -> Result<Vec<(String, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"UPDATE health_findings f SET seen = f.seen + 1, last_seen_at = greatest(f.last_seen_at, r.at)
           FROM UNNEST($2::text[], $3::text[], $4::timestamptz[]) AS r (code, subject, at)
           WHERE f.node_id = $1 AND f.code = r.code AND f.subject = r.subject AND f.state <> 'resolved'
           RETURNING f.code, f.subject"#,
        node.uuid(),
        &reports.iter().map(|r| r.code.clone()).collect::<Vec<_>>(),
        &reports.iter().map(|r| r.subject.clone()).collect::<Vec<_>>(),
        &reports.iter().map(|r| r.observed_at).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.code, row.subject)).collect())
}

pub struct NewFinding<'a> {
    pub id: FindingId,
    pub node: NodeId,
    pub slot: Option<SlotId>,
    pub report: &'a Report,
    pub action: HealthAction,
    pub now: DateTime<Utc>,
}

/// Opens a finding. Nothing when one like it is open already, which then was seen once more.
pub async fn open(conn: &mut Connection, new: &NewFinding<'_>) -> Result<Option<Finding>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO health_findings (id, node_id, slot_id, code, subject, message, evidence, action,
             first_seen_at, last_seen_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $10)
         ON CONFLICT (node_id, code, subject) WHERE state <> 'resolved' DO NOTHING
         RETURNING id, node_id, slot_id, code, subject, message, evidence, action AS "action: HealthAction",
             state AS "state: FindingState", seen, first_seen_at,
             last_seen_at, note, version, created_at, updated_at"#,
        new.id.uuid(),
        new.node.uuid(),
        new.slot.map(SlotId::uuid),
        new.report.code,
        new.report.subject,
        new.report.message,
        new.report.evidence,
        new.action.name(),
        new.report.observed_at,
        new.now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Finding::from))
}

/// Whether a finding with this code about the node waits for somebody.
pub async fn is_open(conn: &mut Connection, node: NodeId, code: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM health_findings WHERE node_id = $1 AND code = $2 AND state <> 'resolved')
               AS "is_open!""#,
        node.uuid(),
        code,
    )
    .fetch_one(conn)
    .await
}

pub async fn open_count(conn: &mut Connection, node: NodeId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM health_findings WHERE node_id = $1 AND state <> 'resolved'"#,
        node.uuid(),
    )
    .fetch_one(conn)
    .await
}

/// Unresolved findings about a slot other than this one that took it out of service.
pub async fn others_about_slot(
    conn: &mut Connection,
    slot: SlotId,
    but: FindingId,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM health_findings
           WHERE slot_id = $1 AND id <> $2 AND state <> 'resolved' AND action IN ('quarantine', 'credit')"#,
        slot.uuid(),
        but.uuid(),
    )
    .fetch_one(conn)
    .await
}

pub async fn get(conn: &mut Connection, id: FindingId) -> Result<Option<Finding>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, slot_id, code, subject, message, evidence, action AS "action: HealthAction",
                 state AS "state: FindingState", seen, first_seen_at,
             last_seen_at, note, version, created_at, updated_at
         FROM health_findings WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Finding::from))
}

pub async fn lock(conn: &mut Connection, id: FindingId) -> Result<Option<Finding>, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM health_findings WHERE id = $1 FOR UPDATE", id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    get(conn, id).await
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub node: Option<NodeId>,
    pub state: Option<FindingState>,
    pub code: Option<&'a str>,
    pub action: Option<HealthAction>,
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    filter: Filter<'_>,
    page: &PageQuery,
) -> Result<Vec<Finding>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, slot_id, code, subject, message, evidence, action AS "action: HealthAction",
                 state AS "state: FindingState", seen, first_seen_at,
             last_seen_at, note, version, created_at, updated_at
         FROM health_findings
         WHERE id < $1 AND ($3::uuid IS NULL OR node_id = $3) AND ($4::text IS NULL OR state = $4)
           AND ($5::text IS NULL OR code = $5) AND ($6::text IS NULL OR action = $6)
         ORDER BY id DESC LIMIT $2"#,
        page.before(),
        page.limit(),
        filter.node.map(NodeId::uuid),
        filter.state.map(FindingState::name),
        filter.code,
        filter.action.map(HealthAction::name),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Finding::from).collect())
}

pub async fn transition(
    conn: &mut Connection,
    finding: &Finding,
    to: FindingState,
    note: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Swap<Finding>, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE health_findings SET state = $3, note = coalesce($4, note), version = version + 1, updated_at = $5
         WHERE id = $1 AND version = $2
         RETURNING id, node_id, slot_id, code, subject, message, evidence, action AS "action: HealthAction",
             state AS "state: FindingState", seen, first_seen_at,
             last_seen_at, note, version, created_at, updated_at"#,
        finding.id.uuid(),
        finding.version,
        to.name(),
        note,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match row {
        Some(_) => None,
        None => get(conn, finding.id).await?.map(|finding| finding.version),
    };
    Ok(Swap::from_update(row.map(Finding::from), current))
}
