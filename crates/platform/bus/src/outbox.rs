//! The outbox as the relay works it off and as people see it. Rows are written by `WriteTx::commit` only.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery,
    event::Envelope,
    ids::{EventId, OrgId},
};
use pg::{Connection, Db};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Message, UPKEEP, postgres::after};

/// A pending row on lease to a relay.
pub(crate) struct Pending {
    pub message: Message,
    /// Counts this one.
    pub attempts: u32,
}

impl Pending {
    pub fn id(&self) -> Uuid {
        self.message.envelope.event_id
    }
}

/// Leases the oldest pending rows. Rows that another relay holds are passed over, so relays share the work;
/// those of a relay that died are free again when the lease ends.
pub(crate) async fn events_lease(db: &Db, max: usize, lease: Duration) -> Result<Vec<Pending>, pg::Error> {
    let now = db.ambient().now();
    let mut tx = db.upkeep(UPKEEP).await?;
    let rows = sqlx::query!(
        r#"WITH due AS (
            SELECT position FROM outbox_events
            WHERE published_at IS NULL AND next_attempt_at <= $1
            ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED
        ), leased AS (
            UPDATE outbox_events o SET attempts = o.attempts + 1, next_attempt_at = $3
            FROM due WHERE o.position = due.position
            RETURNING o.position, o.event_id, o.stream, o.event_type, o.version, o.occurred_at, o.correlation_id, o.traceparent,
                o.org_id, o.project_id, o.payload, o.attempts
        )
        SELECT event_id AS "event_id!", stream AS "stream!", event_type AS "event_type!", version AS "version!",
            occurred_at AS "occurred_at!", correlation_id AS "correlation_id!", traceparent, org_id, project_id,
            payload AS "payload!", attempts AS "attempts!"
        FROM leased ORDER BY position"#,
        now,
        i64::try_from(max).unwrap_or(i64::MAX),
        after(now, lease),
    )
    .fetch_all(tx.conn())
    .await?;
    let pending = rows.into_iter().map(|r| Pending {
        attempts: u32::try_from(r.attempts).unwrap_or(u32::MAX),
        message: Message {
            stream: r.stream,
            envelope: Envelope {
                event_id: r.event_id,
                event_type: r.event_type,
                version: u16::try_from(r.version).unwrap_or(0),
                occurred_at: r.occurred_at,
                correlation_id: r.correlation_id,
                traceparent: r.traceparent,
                org_id: r.org_id,
                project_id: r.project_id,
                payload: r.payload,
            },
        },
    });
    Ok(pending.collect())
}

pub(crate) async fn published(db: &Db, ids: &[Uuid]) -> Result<(), pg::Error> {
    let now = db.ambient().now();
    let mut tx = db.upkeep(UPKEEP).await?;
    sqlx::query!(
        "UPDATE outbox_events SET published_at = $2, last_error = NULL
         WHERE event_id = ANY ($1) AND published_at IS NULL",
        ids,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Gives rows back, each to be tried again at its own time.
pub(crate) async fn failed(
    db: &Db,
    ids: &[Uuid],
    next_attempts: &[DateTime<Utc>],
    error: &str,
) -> Result<(), pg::Error> {
    let mut tx = db.upkeep(UPKEEP).await?;
    sqlx::query!(
        "UPDATE outbox_events o SET next_attempt_at = f.at, last_error = $3
         FROM unnest($1::uuid[], $2::timestamptz[]) AS f (id, at)
         WHERE o.event_id = f.id AND o.published_at IS NULL",
        ids,
        next_attempts,
        error,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

pub(crate) async fn clean(db: &Db, before: DateTime<Utc>, at_most: i64) -> Result<u64, pg::Error> {
    let mut tx = db.upkeep(UPKEEP).await?;
    let done = sqlx::query!(
        "DELETE FROM outbox_events WHERE position IN (
            SELECT position FROM outbox_events WHERE published_at < $1 ORDER BY published_at LIMIT $2)",
        before,
        at_most,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// How much waits, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub pending: u64,
    pub failing: u64,
    pub oldest_age_seconds: u64,
}

pub async fn backlog(conn: &mut Connection, now: DateTime<Utc>) -> Result<Backlog, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) AS "pending!", count(last_error) AS "failing!", min(occurred_at) AS oldest
           FROM outbox_events WHERE published_at IS NULL"#
    )
    .fetch_one(conn)
    .await?;
    let age = row.oldest.map_or(0, |at| now.signed_duration_since(at).num_seconds());
    Ok(Backlog {
        pending: u64::try_from(row.pending).unwrap_or(0),
        failing: u64::try_from(row.failing).unwrap_or(0),
        oldest_age_seconds: u64::try_from(age).unwrap_or(0),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutboxState {
    /// Waits for its first publication.
    Pending,
    /// Could not be published and is tried again.
    Failing,
}

/// An event that has not left yet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OutboxEvent {
    pub id: EventId,
    pub state: OutboxState,
    pub stream: String,
    pub event_type: String,
    pub correlation_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Absent before the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

/// What waits in the outbox: the figures, and a page of the rows, oldest first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Outbox {
    pub pending: u64,
    pub failing: u64,
    pub oldest_age_seconds: u64,
    pub items: Vec<OutboxEvent>,
    /// Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

pub async fn show(
    conn: &mut Connection,
    now: DateTime<Utc>,
    state: Option<OutboxState>,
    page: &PageQuery,
) -> Result<Outbox, Failure> {
    let backlog = backlog(&mut *conn, now).await?;
    let rows = sqlx::query!(
        r#"SELECT event_id, stream, event_type, correlation_id, org_id, attempts, last_error, occurred_at,
            nullif(next_attempt_at, '-infinity') AS next_attempt_at
        FROM outbox_events
        WHERE published_at IS NULL AND event_id > $1 AND ($2::boolean IS NULL OR (last_error IS NOT NULL) = $2)
        ORDER BY event_id LIMIT $3"#,
        page.after(),
        state.map(|s| s == OutboxState::Failing) as Option<bool>,
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    let page = page.page(rows, |row| row.event_id).map(|row| OutboxEvent {
        id: row.event_id.into(),
        state: if row.last_error.is_some() { OutboxState::Failing } else { OutboxState::Pending },
        stream: row.stream,
        event_type: row.event_type,
        correlation_id: row.correlation_id,
        org_id: row.org_id.map(OrgId::from),
        attempts: u32::try_from(row.attempts).unwrap_or(0),
        last_error: row.last_error,
        next_attempt_at: row.next_attempt_at,
        created_at: row.occurred_at,
    });
    Ok(Outbox {
        pending: backlog.pending,
        failing: backlog.failing,
        oldest_age_seconds: backlog.oldest_age_seconds,
        items: page.items,
        next_cursor: page.next_cursor,
    })
}
