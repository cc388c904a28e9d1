//! Meters that stand still: written through meter_pause and meter_resume only.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, FindingId, OrgId, PauseId, PostingId};
use pg::{Connection, WriteTx};
use serde_json::Value;

/// A meter that stands still from now on.
pub struct Paused {
    pub since: DateTime<Utc>,
    pub credited_minor: i64,
    /// The posting; nothing when it was less than a minor unit.
    pub seq: Option<i64>,
}

/// Nothing when the meter does not run.
pub async fn pause(
    tx: &mut WriteTx,
    allocation: AllocationId,
    since: DateTime<Utc>,
    finding: FindingId,
    reason: &str,
    evidence: &Value,
) -> Result<Option<Paused>, sqlx::Error> {
    let ambient = tx.db().ambient().clone();
    let (pause, posting): (PauseId, PostingId) = (ambient.id(), ambient.id());
    let correlation = tx.permit().origin().correlation_id.0;
    let credited = sqlx::query_scalar!(
        "SELECT meter_pause($1, $2, $3, ROW($4, $5, $6)::pause_cause, $7, $8, $9)",
        allocation.uuid(),
        since,
        pause.uuid(),
        finding.uuid(),
        reason,
        evidence,
        ambient.now(),
        posting.uuid(),
        correlation,
    )
    .fetch_one(tx.conn())
    .await?;
    if credited.is_none() {
        return Ok(None);
    }
    let row = sqlx::query!("SELECT since, credited_minor, seq FROM meter_pauses WHERE id = $1", pause.uuid())
        .fetch_one(tx.conn())
        .await?;
    Ok(Some(Paused { since: row.since, credited_minor: row.credited_minor, seq: row.seq }))
}

/// A meter that stands still because of a finding.
pub struct PausedMeter {
    pub pause: PauseId,
    pub org: OrgId,
    pub allocation: Option<AllocationId>,
    pub since: DateTime<Utc>,
}

/// In the order in which their chains are held by everybody.
pub async fn of_finding(conn: &mut Connection, finding: FindingId) -> Result<Vec<PausedMeter>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT p.id, p.org_id, m.allocation_id, p.since FROM meter_pauses p JOIN meters m ON m.id = p.meter_id
         WHERE p.finding_id = $1 AND p.resumed_at IS NULL ORDER BY p.org_id, p.id",
        finding.uuid()
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| PausedMeter {
        pause: row.id.into(),
        org: row.org_id.into(),
        allocation: row.allocation_id.map(AllocationId::from),
        since: row.since,
    });
    Ok(rows.collect())
}

/// False when it was closed or resumed meanwhile.
pub async fn resume(tx: &mut WriteTx, pause: PauseId, at: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT meter_resume($1, $2) AS "done!""#, pause.uuid(), at)
        .fetch_one(tx.conn())
        .await
}

/// What went back for a time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenBack {
    pub since: DateTime<Utc>,
    pub credited_minor: i64,
    /// The last posting; nothing when it was less than a minor unit.
    pub seq: Option<i64>,
}

/// Credits what the meter was charged for this time, in any state. None when there is nothing to credit.
pub async fn charges_credit(
    tx: &mut WriteTx,
    allocation: AllocationId,
    (since, until): (DateTime<Utc>, DateTime<Utc>),
    finding: FindingId,
    reason: &str,
    evidence: &Value,
) -> Result<Option<GivenBack>, sqlx::Error> {
    let now = tx.db().ambient().now();
    let correlation = tx.permit().origin().correlation_id.0;
    let row = sqlx::query!(
        r#"SELECT credited AS "credited!", since, posting FROM meter_credit($1, $2, $3, $4, $5, $6, $7, $8)"#,
        allocation.uuid(),
        since,
        until,
        finding.uuid(),
        reason,
        evidence,
        now,
        correlation,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(row.since.map(|since| GivenBack { since, credited_minor: row.credited, seq: row.posting }))
}
