//! Credits for faulty hardware that the product proposed, and what a credit would be.

use chrono::{DateTime, Utc};
use kernel::ids::{AdjustmentId, AllocationId, FindingId, OrgId, ProjectId, UserId};
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    adjustment::AdjustmentState,
    fault_credit::{FaultCredit, ReviewCause},
};

/// Whose the meter of an allocation is; nothing when it has none.
pub async fn org_of(conn: &mut Connection, allocation: AllocationId) -> Result<Option<OrgId>, sqlx::Error> {
    let org = sqlx::query_scalar!("SELECT org_id FROM meters WHERE allocation_id = $1", allocation.uuid())
        .fetch_optional(conn)
        .await?;
    Ok(org.map(OrgId::from))
}

/// A meter, and what it costs for some time.
#[derive(Clone, Debug)]
pub struct Quote {
    pub org: OrgId,
    pub project: ProjectId,
    pub currency: String,
    /// Who made what is metered.
    pub creator: Option<UserId>,
    /// Where that time begins, or where the meter was opened if that was later.
    pub since: DateTime<Utc>,
    pub closed_at: Option<DateTime<Utc>>,
    /// For the part of it that was not given back already, rounded up.
    pub amount_minor: i64,
}

/// Nothing when the meter was never opened.
pub async fn quote(
    conn: &mut Connection,
    allocation: AllocationId,
    since: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Option<Quote>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT m.org_id, m.project_id, m.currency, m.person_id, m.closed_at,
               greatest(date_trunc('second', $2::timestamptz), m.opened_at) AS "since!",
               usage_cost_rounded_up(m.unit_price_minor, m.units, s.seconds) AS "amount!"
           FROM meters m, LATERAL (
               SELECT coalesce(sum(extract(epoch FROM upper(r) - lower(r))), 0)::bigint AS seconds
               FROM unnest(meter_charged_times(m.id, $2, $3)) AS r
           ) AS s
           WHERE m.allocation_id = $1 AND m.opened_at IS NOT NULL"#,
        allocation.uuid(),
        since,
        until,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Quote {
        org: row.org_id.into(),
        project: row.project_id.into(),
        currency: row.currency,
        creator: row.person_id.map(UserId::from),
        since: row.since,
        closed_at: row.closed_at,
        amount_minor: row.amount,
    }))
}

/// False when this was proposed before.
pub async fn is_new(
    conn: &mut Connection,
    allocation: AllocationId,
    finding: FindingId,
    since: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (SELECT FROM fault_credits WHERE allocation_id = $1 AND finding_id = $2 AND since = $3) AS "new!""#,
        allocation.uuid(),
        finding.uuid(),
        since,
    )
    .fetch_one(conn)
    .await
}

pub async fn insert(
    conn: &mut Connection,
    adjustment: AdjustmentId,
    org: OrgId,
    new: &FaultCredit,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO fault_credits (adjustment_id, org_id, allocation_id, finding_id, code, part, cause, since, until, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        adjustment.uuid(),
        org.uuid(),
        new.allocation_id.uuid(),
        new.finding_id.uuid(),
        new.code,
        new.part,
        new.cause.name(),
        new.since,
        new.until,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What was decided about all of the time of a fault for an allocation, as long as the fault lasts: the state of the
/// adjustment that was proposed because the tenant is root there.
pub async fn decision(
    conn: &mut Connection,
    allocation: AllocationId,
    finding: FindingId,
) -> Result<Option<AdjustmentState>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT a.state AS "state: AdjustmentState" FROM fault_credits f JOIN ledger_adjustments a ON a.id = f.adjustment_id
         WHERE f.allocation_id = $1 AND f.finding_id = $2 AND f.cause = 'tenant_root' ORDER BY f.since LIMIT 1"#,
        allocation.uuid(),
        finding.uuid(),
    )
    .fetch_optional(conn)
    .await
}

struct Row {
    adjustment_id: Uuid,
    allocation_id: Uuid,
    finding_id: Uuid,
    code: String,
    part: String,
    cause: ReviewCause,
    since: DateTime<Utc>,
    until: Option<DateTime<Utc>>,
}

impl From<Row> for FaultCredit {
    fn from(row: Row) -> Self {
        Self {
            allocation_id: row.allocation_id.into(),
            finding_id: row.finding_id.into(),
            code: row.code,
            part: row.part,
            cause: row.cause,
            since: row.since,
            until: row.until,
        }
    }
}

/// The fault of a proposed adjustment, locked until the transaction ends, so that the end of the fault is serialized with
/// the decision. Nothing when a person proposed it.
pub async fn lock(conn: &mut Connection, id: AdjustmentId) -> Result<Option<FaultCredit>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT adjustment_id, allocation_id, finding_id, code, part, cause AS "cause: ReviewCause", since, until
         FROM fault_credits WHERE adjustment_id = $1 FOR UPDATE"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(FaultCredit::from))
}

/// Of these adjustments, those that the product proposed.
pub async fn of_adjustments(
    conn: &mut Connection,
    ids: &[AdjustmentId],
) -> Result<Vec<(AdjustmentId, FaultCredit)>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT adjustment_id, allocation_id, finding_id, code, part, cause AS "cause: ReviewCause", since, until
         FROM fault_credits WHERE adjustment_id = ANY ($1)"#,
        &ids.iter().map(|id| id.uuid()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.adjustment_id.into(), row.into())).collect())
}

/// The fault was resolved: what was proposed for as long as it lasts has an end.
pub async fn end(conn: &mut Connection, finding: FindingId, at: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE fault_credits SET until = greatest($2, since) WHERE finding_id = $1 AND until IS NULL",
        finding.uuid(),
        at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// What was posted in the end.
pub async fn amount_set(
    conn: &mut Connection,
    id: AdjustmentId,
    amount_minor: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query!("UPDATE ledger_adjustments SET amount_minor = $2 WHERE id = $1", id.uuid(), amount_minor)
        .execute(conn)
        .await?;
    Ok(())
}
