//! Meters: written through the functions in `migrations/functions/billing` only.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, PostingId};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::meter::{Launch, LaunchMeter};

/// What became of asking for a hold.
pub struct Held {
    /// `ok`, `insufficient_balance`, `budget_blocked` or `spend_cap`.
    pub answer: String,
    pub available: i64,
    pub needed: i64,
}

pub async fn hold(
    tx: &mut WriteTx,
    launch: &Launch,
    meters: &[LaunchMeter],
    seconds: i64,
    posting: PostingId,
) -> Result<Held, sqlx::Error> {
    let now = tx.db().ambient().now();
    let (actor, correlation) = (tx.permit().actor(), tx.permit().origin().correlation_id.0);
    sqlx::query_as!(
        Held,
        r#"SELECT answer AS "answer!", coalesce(available, 0) AS "available!", needed AS "needed!"
           FROM meters_hold(ROW($1, $2, $3, $4, $5, $6, $7, $8)::meter_terms, $9, $10, $11,
               ROW($12, $13, $14)::write_origin, $15, $16)"#,
        launch.org.uuid(),
        launch.project.uuid(),
        launch.person as Option<Uuid>,
        launch.sku,
        launch.unit.name(),
        launch.units,
        launch.unit_price_minor,
        launch.currency,
        now,
        seconds,
        posting.uuid(),
        actor.kind.name(),
        actor.id as Option<Uuid>,
        correlation,
        &meters.iter().map(|meter| meter.id.uuid()).collect::<Vec<_>>(),
        &meters.iter().map(|meter| meter.allocation.uuid()).collect::<Vec<_>>(),
    )
    .fetch_one(tx.conn())
    .await
}

/// False when there is none that waits.
pub async fn open(
    tx: &mut WriteTx,
    allocation: AllocationId,
    at: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT meter_open($1, $2) AS "done!""#, allocation.uuid(), at)
        .fetch_one(tx.conn())
        .await
}

/// False when none runs.
pub async fn close(
    tx: &mut WriteTx,
    allocation: AllocationId,
    at: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT meter_close($1, $2) AS "done!""#, allocation.uuid(), at)
        .fetch_one(tx.conn())
        .await
}

/// False when there is none that waits.
pub async fn void(tx: &mut WriteTx, allocation: AllocationId) -> Result<bool, sqlx::Error> {
    let (now, posting) = (tx.db().ambient().now(), tx.db().ambient().uuid());
    let correlation = tx.permit().origin().correlation_id.0;
    sqlx::query_scalar!(
        r#"SELECT meter_void($1, $2, $3, $4) AS "done!""#,
        allocation.uuid(),
        now,
        posting,
        correlation
    )
    .fetch_one(tx.conn())
    .await
}

/// An organization with something to accrue.
pub struct Due {
    pub org: Uuid,
    pub meters: i64,
    /// The earliest second that was not accrued.
    pub oldest: DateTime<Utc>,
}

pub async fn due(conn: &mut Connection, target: DateTime<Utc>) -> Result<Vec<Due>, sqlx::Error> {
    sqlx::query_as!(
        Due,
        r#"SELECT org_id AS "org!", due AS "meters!", oldest AS "oldest!" FROM meters_due($1)"#,
        target
    )
    .fetch_all(conn)
    .await
}

/// Of one organization.
pub struct Accrued {
    pub org: Uuid,
    pub meters: i64,
    pub posted_minor: i64,
}

/// Accrues one window of each meter that is due, at most `limit` of each organization. Organizations whose chain
/// somebody else holds are left out of the answer.
pub async fn accrue(
    tx: &mut WriteTx,
    orgs: &[Uuid],
    target: DateTime<Utc>,
    limit: i32,
) -> Result<Vec<Accrued>, sqlx::Error> {
    let ambient = tx.db().ambient().clone();
    let postings: Vec<Uuid> = orgs.iter().map(|_| ambient.uuid()).collect();
    let correlation = tx.permit().origin().correlation_id.0;
    sqlx::query_as!(
        Accrued,
        r#"SELECT org_id AS "org!", accrued AS "meters!", posted_minor AS "posted_minor!"
           FROM meters_accrue($1, $2, $3, $4, $5, $6)"#,
        orgs,
        &postings,
        ambient.now(),
        target,
        limit,
        correlation,
    )
    .fetch_all(tx.conn())
    .await
}

/// A meter that was accrued beyond its end: the clock was wrong then, or it ended in the same moment.
pub struct Beyond {
    pub meter: Uuid,
    pub org: Uuid,
    pub closed_at: DateTime<Utc>,
}

pub async fn beyond_end(conn: &mut Connection, limit: i64) -> Result<Vec<Beyond>, sqlx::Error> {
    sqlx::query_as!(
        Beyond,
        r#"SELECT id AS meter, org_id AS org, closed_at AS "closed_at!" FROM meters
           WHERE state = 'closed' AND closed_at < accrued_until ORDER BY org_id, id LIMIT $1"#,
        limit
    )
    .fetch_all(conn)
    .await
}

/// Takes back what was accrued after `to`, as a correction.
pub async fn rewind(tx: &mut WriteTx, meter: Uuid, to: DateTime<Utc>) -> Result<i64, sqlx::Error> {
    let (now, posting) = (tx.db().ambient().now(), tx.db().ambient().uuid());
    let correlation = tx.permit().origin().correlation_id.0;
    sqlx::query_scalar!(
        r#"SELECT credited AS "credited!" FROM meter_rewind($1, $2, 'correction', 'use after the end was not real', $3, $4, $5)"#,
        meter,
        to,
        now,
        posting,
        correlation,
    )
    .fetch_one(tx.conn())
    .await
}

/// Holds the chain of an organization to the end of the transaction. False when it has none.
pub async fn chain_lock(tx: &mut WriteTx, org: Uuid) -> Result<bool, sqlx::Error> {
    let held = sqlx::query_scalar!(
        r#"SELECT (ledger_lock(c.org_id, c.currency)).seq AS "seq!" FROM ledger_chains c WHERE c.org_id = $1"#,
        org
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(held.is_some())
}
