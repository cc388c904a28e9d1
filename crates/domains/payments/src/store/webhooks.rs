//! Messages of the provider, as they came.

use chrono::{DateTime, Utc};
use kernel::{PageQuery, ids::EventId};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::webhook::{MessageState, PaymentMessage};

/// A message as it is processed.
pub struct LeasedMessage {
    pub id: EventId,
    pub event_type: String,
    pub body: Vec<u8>,
    pub attempts: i32,
}

/// Stores a message once and wakes the worker. True when it is new.
pub async fn message_insert(
    conn: &mut Connection,
    id: EventId,
    provider: &str,
    label: (&str, &str),
    body: &[u8],
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let new = sqlx::query_scalar!(
        r#"WITH kept AS (
               INSERT INTO payment_messages (id, provider, event_id, event_type, body, received_at, next_attempt_at)
               VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (provider, event_id) DO NOTHING RETURNING id
           )
           SELECT pg_notify('gpuaas_webhooks', '') IS NOT NULL AS "new!" FROM kept"#,
        id.uuid(),
        provider,
        label.0,
        label.1,
        body,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(new.is_some())
}

/// The next one that is due; others leave it alone until the transaction ends.
pub async fn take_due(
    conn: &mut Connection,
    provider: &str,
    now: DateTime<Utc>,
) -> Result<Option<LeasedMessage>, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT id, event_type, body, attempts FROM payment_messages
         WHERE state = 'received' AND next_attempt_at <= $2 AND provider = $1
         ORDER BY next_attempt_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
        provider,
        now
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| LeasedMessage {
        id: row.id.into(),
        event_type: row.event_type,
        body: row.body,
        attempts: row.attempts,
    }))
}

/// How many are due and how long the oldest waits, in seconds.
pub async fn backlog(conn: &mut Connection, now: DateTime<Utc>) -> Result<(i64, f64, i64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT count(*) FILTER (WHERE state = 'received') AS "waiting!",
             coalesce(extract(epoch FROM $1 - min(received_at) FILTER (WHERE state = 'received')), 0)::float8 AS "oldest!",
             count(*) FILTER (WHERE state = 'failed') AS "failed!"
           FROM payment_messages WHERE state IN ('received', 'failed')"#,
        now
    )
    .fetch_one(conn)
    .await?;
    Ok((row.waiting, row.oldest, row.failed))
}

pub async fn finish(
    conn: &mut Connection,
    id: EventId,
    state: MessageState,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE payment_messages SET state = $2, state_reason = $3, attempts = attempts + 1, waits_for = NULL,
             processed_at = $4 WHERE id = $1",
        id.uuid(),
        state.name(),
        reason,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// It could not be processed now: later, or, with `give_up`, not until somebody or what it waits for asks for it.
pub async fn postpone(
    conn: &mut Connection,
    id: EventId,
    why: &str,
    waits_for: Option<&str>,
    until: DateTime<Utc>,
    give_up: bool,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE payment_messages SET state = CASE WHEN $5 THEN 'failed' ELSE state END, state_reason = $2, waits_for = $3,
             next_attempt_at = $4, attempts = attempts + 1
         WHERE id = $1 AND state = 'received'",
        id.uuid(),
        why,
        waits_for,
        until,
        give_up,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What waited for this payment is due at once.
pub async fn wake(conn: &mut Connection, intent: &str, now: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE payment_messages SET state = 'received', next_attempt_at = $2
         WHERE waits_for = $1 AND state IN ('received', 'failed')",
        intent,
        now
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

struct Row {
    id: Uuid,
    provider: String,
    event_id: String,
    event_type: String,
    state: MessageState,
    state_reason: String,
    attempts: i32,
    waits_for: Option<String>,
    received_at: DateTime<Utc>,
    next_attempt_at: DateTime<Utc>,
    processed_at: Option<DateTime<Utc>>,
}

impl From<Row> for PaymentMessage {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            provider: row.provider,
            event_id: row.event_id,
            event_type: row.event_type,
            state: row.state,
            state_reason: row.state_reason,
            attempts: row.attempts,
            waits_for: row.waits_for,
            received_at: row.received_at,
            next_attempt_at: row.next_attempt_at,
            processed_at: row.processed_at,
        }
    }
}

pub async fn list(
    conn: &mut Connection,
    state: Option<MessageState>,
    page: &PageQuery,
) -> Result<Vec<PaymentMessage>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, provider, event_id, event_type, state AS "state: MessageState", state_reason, attempts, waits_for,
                 received_at, next_attempt_at,
             processed_at
         FROM payment_messages WHERE id < $1 AND ($3::text IS NULL OR state = $3) ORDER BY id DESC LIMIT $2"#,
        page.before(),
        page.limit(),
        state.map(|state| state.name()),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(PaymentMessage::from).collect())
}

pub async fn lock(conn: &mut Connection, id: EventId) -> Result<Option<PaymentMessage>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, provider, event_id, event_type, state AS "state: MessageState", state_reason, attempts, waits_for,
                 received_at, next_attempt_at,
             processed_at
         FROM payment_messages WHERE id = $1 FOR NO KEY UPDATE"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PaymentMessage::from))
}

pub async fn requeue(
    conn: &mut Connection,
    id: EventId,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<PaymentMessage, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE payment_messages SET state = 'received', state_reason = $2, attempts = 0, next_attempt_at = $3 WHERE id = $1
         RETURNING id, provider, event_id, event_type, state AS "state: MessageState", state_reason, attempts,
             waits_for, received_at, next_attempt_at,
             processed_at"#,
        id.uuid(),
        reason,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}
