//! Sessions: who has one, and how it ended.

use capacity::api::Entry;
use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{AllocationId, NodeId, TerminalSessionId},
    principal::{PrincipalId, PrincipalKind},
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::session::{END_CHANNEL, TerminalSession};

struct Row {
    id: Uuid,
    allocation_id: Uuid,
    principal_kind: String,
    principal_id: Uuid,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    last_attached_at: Option<DateTime<Utc>>,
    attachments: i32,
    ended_at: Option<DateTime<Utc>>,
    end_reason: Option<String>,
    exit_status: Option<i32>,
}

impl From<Row> for TerminalSession {
    fn from(row: Row) -> Self {
        let principal = if row.principal_kind == "user" {
            PrincipalId::User(row.principal_id.into())
        } else {
            PrincipalId::ServiceAccount(row.principal_id.into())
        };
        Self {
            id: row.id.into(),
            allocation_id: row.allocation_id.into(),
            principal,
            created_at: row.created_at,
            expires_at: row.expires_at,
            last_attached_at: row.last_attached_at,
            attachments: row.attachments,
            ended_at: row.ended_at,
            end_reason: row.end_reason,
            exit_status: row.exit_status,
        }
    }
}

pub async fn insert(
    tx: &mut WriteTx,
    id: TerminalSessionId,
    entry: &Entry,
    owner: PrincipalId,
    (created_at, expires_at): (DateTime<Utc>, DateTime<Utc>),
    end_grant: &[u8],
) -> Result<(), sqlx::Error> {
    let kind = match owner.kind() {
        PrincipalKind::User => "user",
        PrincipalKind::ServiceAccount => "service_account",
    };
    sqlx::query!(
        "INSERT INTO terminal_sessions (id, org_id, project_id, allocation_id, node_id, principal_kind, principal_id,
             created_at, expires_at, end_grant)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        id.uuid(),
        entry.org_id.uuid(),
        entry.project_id.uuid(),
        entry.allocation_id.uuid(),
        entry.node_id.uuid(),
        kind,
        owner.uuid(),
        created_at,
        expires_at,
        end_grant,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Sessions of one allocation start one after the other, so that their limit holds.
pub async fn starts_lock(tx: &mut WriteTx, allocation: AllocationId) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended('terminal_sessions' || $1::text, 0)) AS "locked: ()""#,
        allocation.to_string(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(())
}

/// A session of this allocation.
pub async fn get(
    conn: &mut Connection,
    allocation: AllocationId,
    id: TerminalSessionId,
) -> Result<Option<TerminalSession>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, allocation_id, principal_kind, principal_id, created_at, expires_at, last_attached_at, attachments,
             ended_at, end_reason, exit_status
         FROM terminal_sessions WHERE id = $1 AND allocation_id = $2",
        id.uuid(),
        allocation.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(TerminalSession::from))
}

pub async fn list(
    conn: &mut Connection,
    allocation: AllocationId,
    open: bool,
    page: &PageQuery,
) -> Result<Vec<TerminalSession>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, allocation_id, principal_kind, principal_id, created_at, expires_at, last_attached_at, attachments,
             ended_at, end_reason, exit_status
         FROM terminal_sessions
         WHERE allocation_id = $1 AND id > $2 AND (NOT $3 OR ended_at IS NULL) ORDER BY id LIMIT $4",
        allocation.uuid(),
        page.after(),
        open,
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(TerminalSession::from).collect())
}

/// Open ones, as far as is known. A session to which nobody attached while its token was good never starts.
pub async fn count_open(
    conn: &mut Connection,
    allocation: AllocationId,
    now: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM terminal_sessions
           WHERE allocation_id = $1 AND ended_at IS NULL AND expires_at > $2
             AND (attachments > 0 OR created_at > $2 - interval '2 minutes')"#,
        allocation.uuid(),
        now,
    )
    .fetch_one(conn)
    .await
}

pub async fn attached(
    conn: &mut Connection,
    id: TerminalSessionId,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_sessions SET last_attached_at = $2, attachments = attachments + 1 WHERE id = $1",
        id.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The first end counts.
pub async fn ended(
    conn: &mut Connection,
    id: TerminalSessionId,
    reason: &str,
    exit_status: Option<i32>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_sessions SET ended_at = $4, end_reason = $2, exit_status = $3
         WHERE id = $1 AND ended_at IS NULL",
        id.uuid(),
        reason,
        exit_status,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Asks the gateways to end a session, and notifies.
pub async fn end_ask(
    conn: &mut Connection,
    id: TerminalSessionId,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH asked AS (UPDATE terminal_sessions SET end_asked_at = coalesce(end_asked_at, $2)
                        WHERE id = $1 AND ended_at IS NULL RETURNING id)
         SELECT pg_notify($3, id::text) FROM asked",
        id.uuid(),
        now,
        END_CHANNEL,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A session that is to be ended.
pub struct ToEnd {
    pub id: TerminalSessionId,
    pub node: NodeId,
    pub grant: Vec<u8>,
}

/// Takes over ending sessions until a time, after which another gateway may: of several, one gets each.
pub async fn end_claim(
    conn: &mut Connection,
    (now, until): (DateTime<Utc>, DateTime<Utc>),
    limit: i64,
) -> Result<Vec<ToEnd>, sqlx::Error> {
    let rows = sqlx::query!(
        "WITH due AS (SELECT id FROM terminal_sessions
             WHERE ended_at IS NULL AND end_asked_at IS NOT NULL AND coalesce(end_claimed_until, $1) <= $1
             ORDER BY end_asked_at LIMIT $3 FOR UPDATE SKIP LOCKED)
         UPDATE terminal_sessions s SET end_claimed_until = $2 FROM due WHERE s.id = due.id
         RETURNING s.id, s.node_id, s.end_grant",
        now,
        until,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let to_end = rows.into_iter();
    Ok(to_end
        .map(|row| ToEnd { id: row.id.into(), node: row.node_id.into(), grant: row.end_grant })
        .collect())
}

/// Notes the end of sessions whose machine or time is over, and of those that never began. Answers how many.
pub async fn end_over(conn: &mut Connection, now: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE terminal_sessions s SET ended_at = $1,
             end_reason = CASE WHEN over.expired THEN 'expired' WHEN over.unused THEN 'unused' ELSE 'released' END
         FROM (SELECT o.id, o.expires_at <= $1 AS expired,
                   o.attachments = 0 AND o.created_at <= $1 - interval '2 minutes' AS unused
               FROM terminal_sessions o JOIN allocations a ON a.id = o.allocation_id
               WHERE o.ended_at IS NULL AND (o.expires_at <= $1 OR a.state IN ('released', 'failed')
                   OR o.attachments = 0 AND o.created_at <= $1 - interval '2 minutes') LIMIT $2) over
         WHERE s.id = over.id AND s.ended_at IS NULL",
        now,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Notes the end of sessions that ended while nobody was attached, as their nodes report it. Answers how many.
///
/// A report may be from before the session began: only one that came a minute after somebody attached counts. Nodes report an end
/// when nobody can attach any more, so no recording is closed before its last output came.
pub async fn end_reported(conn: &mut Connection, now: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE terminal_sessions s SET ended_at = $1, end_reason = coalesce(reported.reason, 'lost'),
             exit_status = reported.exit_status
         FROM (SELECT o.id, r.report ->> 'end_reason' AS reason, (r.report ->> 'exit_status')::integer AS exit_status
               FROM terminal_sessions o JOIN node_contacts c ON c.node_id = o.node_id
               LEFT JOIN LATERAL (SELECT report FROM jsonb_array_elements(c.inventory -> 'terminal_sessions') report
                   WHERE report ->> 'session_id' = 'term_' || replace(o.id::text, '-', '') LIMIT 1) r ON true
               WHERE o.ended_at IS NULL AND c.last_seen_at > o.last_attached_at + interval '1 minute'
                 AND jsonb_typeof(c.inventory -> 'terminal_sessions') = 'array'
                 AND (r.report IS NULL OR r.report ? 'end_reason') LIMIT $2) reported
         WHERE s.id = reported.id AND s.ended_at IS NULL",
        now,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Forgets sessions that ended before `before`. Answers how many.
pub async fn forget(conn: &mut Connection, before: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM terminal_sessions WHERE id IN
             (SELECT id FROM terminal_sessions WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)",
        before,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
