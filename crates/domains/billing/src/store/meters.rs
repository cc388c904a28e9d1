//! Meters: written through the functions of migration 0014 only.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, PostingId};
use pg::WriteTx;
use uuid::Uuid;

use crate::model::meter::{Launch, LaunchMeter};

/// What became of asking for a hold.
pub struct Held {
    /// `ok`, `insufficient_balance` or `budget_blocked`.
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
           FROM meters_hold($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"#,
        launch.org.uuid(),
        launch.project.uuid(),
        launch.person as Option<Uuid>,
        now,
        seconds,
        launch.sku,
        launch.unit,
        launch.units,
        launch.unit_price_minor,
        launch.currency,
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
