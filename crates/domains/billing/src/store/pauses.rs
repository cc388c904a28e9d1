//! Meters that stand still: written through meter_pause and meter_resume only.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, FindingId, OrgId, PauseId, PostingId, ProjectId, UserId};
use pg::{Connection, WriteTx};
use serde_json::Value;

/// A meter that stands still from now on.
pub struct Paused {
    pub org: OrgId,
    pub project: ProjectId,
    pub currency: String,
    pub since: DateTime<Utc>,
    pub credited_minor: i64,
    /// Who made what is metered.
    pub creator: Option<UserId>,
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
        "SELECT meter_pause($1, $2, $3, $4, $5, $6, $7, $8, $9)",
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
    let row = sqlx::query!(
        "SELECT m.org_id, m.project_id, m.currency, m.person_id, p.since, p.credited_minor
         FROM meter_pauses p JOIN meters m ON m.id = p.meter_id WHERE p.id = $1",
        pause.uuid()
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(Some(Paused {
        org: row.org_id.into(),
        project: row.project_id.into(),
        currency: row.currency,
        since: row.since,
        credited_minor: row.credited_minor,
        creator: row.person_id.map(UserId::from),
    }))
}

/// A meter that stands still because of a finding.
pub struct Standing {
    pub pause: PauseId,
    pub org: OrgId,
    pub allocation: Option<AllocationId>,
    pub begun_at: DateTime<Utc>,
}

/// In the order in which their chains are held by everybody.
pub async fn of_finding(conn: &mut Connection, finding: FindingId) -> Result<Vec<Standing>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT p.id, p.org_id, m.allocation_id, p.created_at FROM meter_pauses p JOIN meters m ON m.id = p.meter_id
         WHERE p.finding_id = $1 AND p.resumed_at IS NULL ORDER BY p.org_id, p.id",
        finding.uuid()
    )
    .fetch_all(conn)
    .await?;
    let rows = rows.into_iter().map(|row| Standing {
        pause: row.id.into(),
        org: row.org_id.into(),
        allocation: row.allocation_id.map(AllocationId::from),
        begun_at: row.created_at,
    });
    Ok(rows.collect())
}

/// False when it was closed or resumed meanwhile.
pub async fn resume(tx: &mut WriteTx, pause: PauseId, at: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT meter_resume($1, $2) AS "done!""#, pause.uuid(), at)
        .fetch_one(tx.conn())
        .await
}

/// What a meter that has ended costs from `since` on, and whose it is.
pub struct Ended {
    pub org: OrgId,
    pub project: ProjectId,
    pub currency: String,
    pub credit_minor: i64,
    pub from: DateTime<Utc>,
    pub creator: Option<UserId>,
}

/// The difference between what it costs in all and what it costs without that time, so that together nothing is
/// rounded. Times for which it stood still are not paid for anyway.
pub async fn ended(
    conn: &mut Connection,
    allocation: AllocationId,
    since: DateTime<Utc>,
) -> Result<Option<Ended>, sqlx::Error> {
    let row = sqlx::query!(
        r#"WITH ended AS (
               SELECT m.*, greatest(date_trunc('second', $2::timestamptz), m.opened_at) AS start,
                   m.unit_price_minor * m.units AS rate
               FROM meters m WHERE m.allocation_id = $1 AND m.state IN ('closed', 'settled')
           ), lasted AS (
               SELECT e.*, extract(epoch FROM e.closed_at - e.start)::bigint - coalesce((
                       SELECT sum(extract(epoch FROM least(p.resumed_at, e.closed_at) - greatest(p.since, e.start)))
                       FROM meter_pauses p WHERE p.meter_id = e.id AND least(p.resumed_at, e.closed_at) > greatest(p.since, e.start)
                   ), 0)::bigint AS seconds,
                   e.posted_minor * 3600 + e.carry + e.rate * extract(epoch FROM e.closed_at - e.accrued_until)::bigint AS cost
               FROM ended e WHERE e.closed_at > e.start
           )
           SELECT org_id AS "org_id!", project_id AS "project_id!", currency AS "currency!", start AS "start!", person_id,
               cost / 3600 - (cost - rate * seconds) / 3600 AS "credit!"
           FROM lasted WHERE seconds > 0"#,
        allocation.uuid(),
        since,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Ended {
        org: row.org_id.into(),
        project: row.project_id.into(),
        currency: row.currency,
        credit_minor: row.credit,
        from: row.start,
        creator: row.person_id.map(UserId::from),
    }))
}
