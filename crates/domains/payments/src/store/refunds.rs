//! Refunds. A state changes in [`step`] and nowhere else.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    PageQuery,
    ids::{OrgId, PaymentId, PostingId, RefundId, UserId},
};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    day::Books,
    refund::{Refund, RefundDestination, RefundSource, RefundState},
};

struct Row {
    id: Uuid,
    org_id: Uuid,
    payment_id: Uuid,
    amount_minor: i64,
    currency: String,
    destination: RefundDestination,
    source: RefundSource,
    reason: String,
    state: RefundState,
    state_reason: String,
    provider_refund: Option<String>,
    posting_id: Uuid,
    requested_by: Option<Uuid>,
    attempts: i32,
    first_attempt_at: Option<DateTime<Utc>>,
    unknown_since: Option<DateTime<Utc>>,
    correlation_id: Uuid,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Refund {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            payment_id: row.payment_id.into(),
            amount_minor: row.amount_minor,
            currency: row.currency,
            destination: row.destination,
            source: row.source,
            reason: row.reason,
            state: row.state,
            state_reason: row.state_reason,
            provider_refund: row.provider_refund,
            posting_id: row.posting_id.into(),
            requested_by: row.requested_by.map(UserId::from),
            attempts: row.attempts,
            first_attempt_at: row.first_attempt_at,
            unknown_since: row.unknown_since,
            correlation_id: row.correlation_id,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub struct New<'a> {
    pub id: RefundId,
    pub org: OrgId,
    pub payment: PaymentId,
    pub amount_minor: i64,
    pub currency: &'a str,
    pub source: RefundSource,
    pub reason: &'a str,
    pub state: RefundState,
    pub state_reason: &'a str,
    pub provider_refund: Option<&'a str>,
    pub posting: PostingId,
    pub requested_by: Option<Uuid>,
    pub correlation_id: Uuid,
    pub now: DateTime<Utc>,
}

pub async fn create(conn: &mut Connection, new: New<'_>) -> Result<Refund, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO refunds (id, org_id, payment_id, amount_minor, currency, destination, source, reason, state, state_reason,
             provider_refund, posting_id, requested_by, next_attempt_at, correlation_id, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $14, $14)
         RETURNING id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
             source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.payment.uuid(),
        new.amount_minor,
        new.currency,
        RefundDestination::Card.name(),
        new.source.name(),
        new.reason,
        new.state.name(),
        new.state_reason,
        new.provider_refund,
        new.posting.uuid(),
        new.requested_by,
        new.now,
        new.correlation_id,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

pub async fn get(
    conn: &mut Connection,
    org: Option<OrgId>,
    id: RefundId,
) -> Result<Option<Refund>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
                 source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at
         FROM refunds WHERE id = $1 AND ($2::uuid IS NULL OR org_id = $2)"#,
        id.uuid(),
        org.map(OrgId::uuid)
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Refund::from))
}

/// By our id or by the provider's; held until the transaction ends.
pub async fn lock(
    conn: &mut Connection,
    id: Option<RefundId>,
    provider_refund: &str,
) -> Result<Option<Refund>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
                 source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at
         FROM refunds WHERE id = $1 OR provider_refund = $2 ORDER BY id LIMIT 1 FOR NO KEY UPDATE"#,
        id.map(RefundId::uuid),
        provider_refund
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Refund::from))
}

pub async fn list(
    conn: &mut Connection,
    org: Option<OrgId>,
    page: &PageQuery,
) -> Result<Vec<Refund>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
                 source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at
         FROM refunds WHERE ($1::uuid IS NULL OR org_id = $1) AND id < $2 ORDER BY id DESC LIMIT $3"#,
        org.map(OrgId::uuid),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Refund::from).collect())
}

pub async fn step(
    conn: &mut Connection,
    id: RefundId,
    to: RefundState,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<Refund, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE refunds SET state = $2, state_reason = $3, unknown_since = NULL, version = version + 1, updated_at = $4 WHERE id = $1
         RETURNING id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
             source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at"#,
        id.uuid(),
        to.name(),
        reason,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.into())
}

/// The provider has it and calls it this.
pub async fn accepted(
    conn: &mut Connection,
    id: RefundId,
    provider_refund: &str,
    look_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE refunds SET provider_refund = $2, state_reason = 'the provider carries it out', next_attempt_at = $3, attempts = 0,
             leased_until = NULL, unknown_since = NULL, version = version + 1, updated_at = $4 WHERE id = $1 AND provider_refund IS NULL",
        id.uuid(),
        provider_refund,
        look_at,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// One that is due, with the provider's id of its payment, leased for a while. Its idempotency key counts from the first time
/// on: a worker that stopped between this and the call leaves a refund that may have been sent. Nothing waits for a year: that
/// was put off for good by a release that did not know of `unknown_since`.
pub async fn take_due(
    conn: &mut Connection,
    provider: &str,
    now: DateTime<Utc>,
    lease: TimeDelta,
) -> Result<Option<(Refund, String)>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE refunds SET next_attempt_at = $3, attempts = attempts + 1, first_attempt_at = coalesce(first_attempt_at, $2),
             leased_until = clock_timestamp() + make_interval(secs => $4)
         WHERE id = (SELECT r.id FROM refunds r JOIN payments p ON p.id = r.payment_id
             WHERE r.state = 'pending' AND r.unknown_since IS NULL AND p.provider = $1
                 AND (r.next_attempt_at <= $2 OR r.next_attempt_at > $2::timestamptz + interval '1 year')
             ORDER BY r.next_attempt_at LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED)
         RETURNING id, org_id, payment_id, amount_minor, currency, destination AS "destination: RefundDestination",
             source AS "source: RefundSource", reason, state AS "state: RefundState", state_reason, provider_refund,
             posting_id, requested_by, attempts, first_attempt_at, unknown_since, correlation_id, version,
                 created_at, updated_at"#,
        provider,
        now,
        now + lease,
        lease.as_seconds_f64(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let intent = sqlx::query_scalar!("SELECT intent FROM payments WHERE id = $1", row.payment_id)
        .fetch_one(conn)
        .await?;
    Ok(Some((row.into(), intent)))
}

/// The attempt has ended without news. Only by who took it: another worker may have taken it since.
pub async fn postpone(
    conn: &mut Connection,
    taken: &Refund,
    why: &str,
    until: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE refunds SET next_attempt_at = $3, leased_until = NULL, state_reason = $4
         WHERE id = $1 AND attempts = $2 AND state = 'pending'",
        taken.id.uuid(),
        taken.attempts,
        until,
        why
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Asked just before the provider is called: the lease counts from now, and nobody takes the refund until it is over.
/// False when the refund was settled, heard of or taken by another worker meanwhile, and must not be sent.
pub async fn lease_renew(
    conn: &mut Connection,
    taken: &Refund,
    now: DateTime<Utc>,
    lease: TimeDelta,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE refunds SET leased_until = clock_timestamp() + make_interval(secs => $3), next_attempt_at = $4
         WHERE id = $1 AND attempts = $2 AND state = 'pending' AND provider_refund IS NULL AND unknown_since IS NULL",
        taken.id.uuid(),
        taken.attempts,
        lease.as_seconds_f64(),
        now + lease,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// For how many seconds more a worker may be sending it; nothing when none does. Who holds the row's lock can rely on it:
/// nobody takes a refund that is locked.
pub async fn lease_seconds(conn: &mut Connection, id: RefundId) -> Result<Option<u64>, sqlx::Error> {
    let left = sqlx::query_scalar!(
        r#"SELECT ceil(extract(epoch FROM leased_until - clock_timestamp()))::bigint AS "left!"
           FROM refunds WHERE id = $1 AND leased_until > clock_timestamp()"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(left.map(|left| u64::try_from(left).unwrap_or(0).max(1)))
}

/// Whether it was sent cannot be found out any more by asking again. False when it was told meanwhile.
pub async fn unknown(
    conn: &mut Connection,
    id: RefundId,
    why: &str,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE refunds SET unknown_since = $2, leased_until = NULL, state_reason = $3, version = version + 1, updated_at = $2
         WHERE id = $1 AND state = 'pending' AND provider_refund IS NULL AND unknown_since IS NULL",
        id.uuid(),
        now,
        why,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What went back in a time, and whatever else of these is known.
pub async fn books(
    conn: &mut Connection,
    provider: &str,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    ids: &[String],
) -> Result<(Books, Books), sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT r.provider_refund AS "id!", r.amount_minor, r.currency, r.created_at >= $2 AND r.created_at < $3 AS "within!"
           FROM refunds r JOIN payments p ON p.id = r.payment_id
           WHERE p.provider = $1 AND r.provider_refund IS NOT NULL
             AND ((r.created_at >= $2 AND r.created_at < $3) OR r.provider_refund = ANY ($4))"#,
        provider,
        from,
        until,
        ids,
    )
    .fetch_all(conn)
    .await?;
    let (mut within, mut around) = (Books::new(), Books::new());
    for row in rows {
        if row.within {
            within.insert(row.id.clone(), (row.amount_minor, row.currency.clone()));
        }
        around.insert(row.id, (row.amount_minor, row.currency));
    }
    Ok((within, around))
}
