//! Top-ups. A state changes in [`step`] and [`opened`], and nowhere else.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery,
    ids::{OrgId, TopupId},
};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::topup::{CheckoutOutcome, Topup, TopupState};

struct Row {
    id: Uuid,
    org_id: Uuid,
    provider: String,
    amount_minor: i64,
    currency: String,
    state: TopupState,
    state_reason: String,
    session_id: Option<String>,
    url: Option<String>,
    attempts: i32,
    cancel_requested_at: Option<DateTime<Utc>>,
    correlation_id: Uuid,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Topup {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            provider: row.provider,
            amount_minor: row.amount_minor,
            currency: row.currency,
            state: row.state,
            state_reason: row.state_reason,
            session_id: row.session_id,
            url: row.url,
            attempts: row.attempts,
            cancel_requested_at: row.cancel_requested_at,
            correlation_id: row.correlation_id,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// A top-up as it is made.
pub struct New<'a> {
    pub id: TopupId,
    pub org: OrgId,
    pub provider: &'a str,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub correlation_id: Uuid,
    pub now: DateTime<Utc>,
}

pub async fn create(conn: &mut Connection, new: New<'_>) -> Result<Topup, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO topups (id, org_id, provider, amount_minor, currency, state, state_reason, next_attempt_at,
             correlation_id, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'created', 'a checkout is being made', $6, $7, $6, $6)
         RETURNING id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason,
             session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.provider,
        new.amount_minor,
        new.currency,
        new.now,
        new.correlation_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub async fn get(conn: &mut Connection, org: OrgId, id: TopupId) -> Result<Option<Topup>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason, session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at
         FROM topups WHERE id = $1 AND org_id = $2"#,
        id.uuid(),
        org.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Topup::from))
}

/// Of any organization: for whoever knows the id.
pub async fn outcome(conn: &mut Connection, id: TopupId) -> Result<Option<CheckoutOutcome>, sqlx::Error> {
    sqlx::query_as!(
        CheckoutOutcome,
        r#"SELECT amount_minor, currency, state AS "state: TopupState" FROM topups WHERE id = $1"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await
}

/// Held until the transaction ends.
pub async fn lock(conn: &mut Connection, id: TopupId) -> Result<Option<Topup>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason, session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at
         FROM topups WHERE id = $1 FOR NO KEY UPDATE"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Topup::from))
}

pub async fn list(conn: &mut Connection, org: OrgId, page: &PageQuery) -> Result<Vec<Topup>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason, session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at
         FROM topups WHERE org_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3"#,
        org.uuid(),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Topup::from).collect())
}

pub async fn step(
    conn: &mut Connection,
    id: TopupId,
    to: TopupState,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<Topup, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE topups SET state = $2, state_reason = $3, version = version + 1, updated_at = $4 WHERE id = $1
         RETURNING id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason,
             session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at"#,
        id.uuid(),
        to.name(),
        reason,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub async fn opened(
    conn: &mut Connection,
    id: TopupId,
    session: &str,
    url: &str,
    look_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Topup, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE topups SET state = 'open', state_reason = 'it can be paid', session_id = $2, url = $3, next_attempt_at = $4,
             attempts = 0, version = version + 1, updated_at = $5 WHERE id = $1
         RETURNING id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason,
             session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at"#,
        id.uuid(),
        session,
        url,
        look_at,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// Somebody wants it to end: the worker asks the provider at once.
pub async fn cancel_requested(
    conn: &mut Connection,
    id: TopupId,
    now: DateTime<Utc>,
) -> Result<Topup, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE topups SET cancel_requested_at = $2, next_attempt_at = $2, attempts = 0, version = version + 1, updated_at = $2
         WHERE id = $1
         RETURNING id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason,
             session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at"#,
        id.uuid(),
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// One that is due, taken for a while: if whoever took it is gone by then, another takes it.
pub async fn take_due(
    conn: &mut Connection,
    provider: &str,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<Topup>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE topups SET next_attempt_at = $3, attempts = attempts + 1
         WHERE id = (SELECT id FROM topups WHERE state IN ('created', 'open') AND next_attempt_at <= $2 AND provider = $1
             ORDER BY next_attempt_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
         RETURNING id, org_id, provider, amount_minor, currency, state AS "state: TopupState", state_reason,
             session_id, url, attempts,
             cancel_requested_at, correlation_id, version, created_at, updated_at"#,
        provider,
        now,
        until,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Topup::from))
}

pub async fn postpone(conn: &mut Connection, id: TopupId, until: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query!("UPDATE topups SET next_attempt_at = $2 WHERE id = $1", id.uuid(), until)
        .execute(conn)
        .await?;
    Ok(())
}

pub async fn customer(
    conn: &mut Connection,
    org: OrgId,
    provider: &str,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT customer FROM payment_customers WHERE org_id = $1 AND provider = $2",
        org.uuid(),
        provider
    )
    .fetch_optional(conn)
    .await
}

/// The first one stays.
pub async fn customer_keep(
    conn: &mut Connection,
    org: OrgId,
    provider: &str,
    customer: &str,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO payment_customers (org_id, provider, customer, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        org.uuid(),
        provider,
        customer,
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}
