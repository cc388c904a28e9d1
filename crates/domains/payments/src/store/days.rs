//! Days that were, or are to be, compared with the provider.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::PageQuery;
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::day::{DayState, PaymentDay};

struct Row {
    id: Uuid,
    provider: String,
    day: NaiveDate,
    state: DayState,
    state_reason: String,
    listed: i64,
    missing: i64,
    extra: i64,
    different: i64,
    attempts: i32,
    requested_at: DateTime<Utc>,
    checked_at: Option<DateTime<Utc>>,
}

impl From<Row> for PaymentDay {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            provider: row.provider,
            day: row.day,
            state: row.state,
            state_reason: row.state_reason,
            listed: row.listed,
            missing: row.missing,
            extra: row.extra,
            different: row.different,
            requested_at: row.requested_at,
            checked_at: row.checked_at,
            attempts: row.attempts,
        }
    }
}

/// Asks for a day to be compared, again if it was.
pub async fn request(
    conn: &mut Connection,
    id: Uuid,
    provider: &str,
    day: NaiveDate,
    now: DateTime<Utc>,
) -> Result<PaymentDay, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO payment_days AS d (id, provider, day, state, state_reason, next_attempt_at, requested_at)
         VALUES ($1, $2, $3, 'requested', 'asked for', $4, $4)
         ON CONFLICT (provider, day) DO UPDATE SET state = 'requested', state_reason = 'asked for again', attempts = 0,
             next_attempt_at = $4, requested_at = $4
         RETURNING id, provider, day, state AS "state: DayState", state_reason, listed, missing, extra, different,
             attempts, requested_at, checked_at"#,
        id,
        provider,
        day,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// Days that are over and were never asked for. How many there were.
pub async fn request_past(
    conn: &mut Connection,
    provider: &str,
    days: &[(Uuid, NaiveDate)],
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "INSERT INTO payment_days (id, provider, day, state, state_reason, next_attempt_at, requested_at)
         SELECT d.id, $1, d.day, 'requested', 'the day is over', $2, $2 FROM unnest($3::uuid[], $4::date[]) AS d (id, day)
         ON CONFLICT (provider, day) DO NOTHING",
        provider,
        now,
        &days.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        &days.iter().map(|(_, day)| *day).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

pub async fn take_due(
    conn: &mut Connection,
    provider: &str,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<PaymentDay>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE payment_days SET next_attempt_at = $3, attempts = attempts + 1
         WHERE id = (SELECT id FROM payment_days WHERE state = 'requested' AND next_attempt_at <= $2 AND provider = $1
             ORDER BY day LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
         RETURNING id, provider, day, state AS "state: DayState", state_reason, listed, missing, extra, different,
             attempts, requested_at, checked_at"#,
        provider,
        now,
        until,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PaymentDay::from))
}

/// What came of it.
pub struct Outcome<'a> {
    pub state: DayState,
    pub reason: &'a str,
    pub listed: i64,
    pub missing: i64,
    pub extra: i64,
    pub different: i64,
}

pub async fn finish(
    conn: &mut Connection,
    id: Uuid,
    result: Outcome<'_>,
    now: DateTime<Utc>,
) -> Result<Option<PaymentDay>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE payment_days SET state = $2, state_reason = $3, listed = $4, missing = $5, extra = $6, different = $7,
             checked_at = $8 WHERE id = $1 AND state = 'requested'
         RETURNING id, provider, day, state AS "state: DayState", state_reason, listed, missing, extra, different,
             attempts, requested_at, checked_at"#,
        id,
        result.state.name(),
        result.reason,
        result.listed,
        result.missing,
        result.extra,
        result.different,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PaymentDay::from))
}

pub async fn list(conn: &mut Connection, page: &PageQuery) -> Result<Vec<PaymentDay>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, provider, day, state AS "state: DayState", state_reason, listed, missing, extra, different, attempts,
             requested_at, checked_at
         FROM payment_days WHERE id < $1 ORDER BY id DESC LIMIT $2"#,
        page.before(),
        page.limit()
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(PaymentDay::from).collect())
}

pub async fn postpone(
    conn: &mut Connection,
    id: Uuid,
    why: &str,
    until: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE payment_days SET next_attempt_at = $3, state_reason = $2 WHERE id = $1 AND state = 'requested'",
        id,
        why,
        until
    )
    .execute(conn)
    .await?;
    Ok(())
}
