//! Dead letters as people see them: list, show, requeue, discard.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    event::Envelope,
    ids::{DeadLetterId, EventId, OrgId},
    text::Reason,
};
use lifecycle::{Lifecycle, Named};
use pg::{Connection, Swap, WriteTx};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::{Class, DeadLetterLifecycle, State, Step};
use crate::BUS_CHANNEL;

/// A message that a consumer could not handle.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeadLetter {
    pub id: DeadLetterId,
    /// The consumer that could not handle it.
    pub consumer: String,
    pub stream: String,
    pub event_id: EventId,
    pub event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    pub state: State,
    /// What went wrong last.
    pub error: String,
    pub class: Class,
    pub attempts: u32,
    /// When it is tried again by itself; absent when it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard_reason: Option<String>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The same with the message itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeadLetterDetail {
    #[serde(flatten)]
    pub letter: DeadLetter,
    pub envelope: Envelope,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub consumer: Option<String>,
    pub state: Option<State>,
}

struct Row {
    id: Uuid,
    consumer: String,
    stream: String,
    event_id: Uuid,
    event_type: String,
    org_id: Option<Uuid>,
    state: State,
    error: String,
    class: Class,
    attempts: i32,
    due_at: Option<DateTime<Utc>>,
    discard_reason: Option<String>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for DeadLetter {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            consumer: row.consumer,
            stream: row.stream,
            event_id: row.event_id.into(),
            event_type: row.event_type,
            org_id: row.org_id.map(OrgId::from),
            // The column's check allows no other name.
            state: row.state,
            error: row.error,
            class: row.class,
            attempts: u32::try_from(row.attempts).unwrap_or(0),
            next_attempt_at: row.due_at,
            discard_reason: row.discard_reason,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    filter: &Filter,
    page: &PageQuery,
) -> Result<Page<DeadLetter>, Failure> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, consumer, stream, event_id, event_type, (envelope ->> 'org_id')::uuid AS org_id,
            state AS "state: State", error, class AS "class: Class", attempts, due_at, discard_reason, version, created_at, updated_at
        FROM dead_letters
        WHERE id < $1 AND ($2::text IS NULL OR consumer = $2) AND ($3::text IS NULL OR state = $3)
        ORDER BY id DESC LIMIT $4"#,
        page.before(),
        filter.consumer.as_deref() as Option<&str>,
        filter.state.map(Named::name) as Option<&str>,
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(page.page(rows, |row| row.id).map(DeadLetter::from))
}

pub async fn get(conn: &mut Connection, id: DeadLetterId) -> Result<DeadLetterDetail, Failure> {
    let row = sqlx::query!("SELECT envelope FROM dead_letters WHERE id = $1", id.uuid())
        .fetch_optional(&mut *conn)
        .await?
        .ok_or_else(|| Problem::not_found("dead_letter"))?;
    let letter = load(conn, id).await?;
    Ok(DeadLetterDetail { letter, envelope: serde_json::from_value(row.envelope)? })
}

async fn load(conn: &mut Connection, id: DeadLetterId) -> Result<DeadLetter, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, consumer, stream, event_id, event_type, (envelope ->> 'org_id')::uuid AS org_id,
            state AS "state: State", error, class AS "class: Class", attempts, due_at, discard_reason, version, created_at, updated_at
        FROM dead_letters WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.ok_or_else(|| Problem::not_found("dead_letter"))?.into())
}

/// Gives the letter to its consumer again, at once. Its slow schedule starts anew.
pub async fn requeue(
    tx: &mut WriteTx,
    id: DeadLetterId,
    if_match: Option<i64>,
) -> Result<DeadLetter, Failure> {
    step(tx, id, if_match, Step::Requeue, None).await
}

/// Gives the letter up: it will never have an effect.
pub async fn discard(
    tx: &mut WriteTx,
    id: DeadLetterId,
    if_match: Option<i64>,
    reason: &Reason,
) -> Result<DeadLetter, Failure> {
    let letter = step(tx, id, if_match, Step::Discard, Some(reason)).await?;
    let now = tx.db().ambient().now();
    sqlx::query!(
        "INSERT INTO inbox_records (consumer, event_id, handled_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        letter.consumer,
        letter.event_id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(letter)
}

async fn step(
    tx: &mut WriteTx,
    id: DeadLetterId,
    if_match: Option<i64>,
    step: Step,
    reason: Option<&Reason>,
) -> Result<DeadLetter, Failure> {
    let before = load(tx.conn(), id).await?;
    let version = if_match.unwrap_or(before.version);
    if version != before.version {
        return Err(Problem::version_conflict(before.version).into());
    }
    let next = DeadLetterLifecycle::next(before.state, step).ok_or_else(|| {
        Problem::new(
            Code::InvalidTransition,
            format!("The dead letter is {}, which does not allow {}.", before.state.name(), step.name()),
        )
        .detail("state", before.state.name())
    })?;
    let now = tx.db().ambient().now();
    let updated = sqlx::query_as!(
        Row,
        r#"UPDATE dead_letters SET state = $3, discard_reason = $4, version = version + 1, updated_at = $5::timestamptz,
            due_at = CASE $3 WHEN 'requeued' THEN $5::timestamptz END, tries = 0, slow_retries = 0
        WHERE id = $1 AND version = $2
        RETURNING id, consumer, stream, event_id, event_type, (envelope ->> 'org_id')::uuid AS org_id,
            state AS "state: State", error, class AS "class: Class", attempts, due_at, discard_reason, version, created_at, updated_at"#,
        id.uuid(),
        version,
        next.name(),
        reason.map(Reason::as_str) as Option<&str>,
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    let current = match updated {
        Some(_) => None,
        None => {
            sqlx::query_scalar!("SELECT version FROM dead_letters WHERE id = $1", id.uuid())
                .fetch_optional(tx.conn())
                .await?
        }
    };
    let after: DeadLetter = Swap::from_update(updated, current).or_problem("dead_letter")?.into();
    if next == State::Requeued {
        sqlx::query!("SELECT pg_notify($1, '')", BUS_CHANNEL).execute(tx.conn()).await?;
    }
    tx.record("dead_letter", id, Some(&before), Some(&after))?;
    Ok(after)
}
