//! What a list of postings shows besides the postings.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, ProjectId};
use pg::Connection;

use crate::model::ledger_item::PostedTotals;

/// What there was after each of these postings, by its place.
pub async fn totals(
    conn: &mut Connection,
    org: OrgId,
    seqs: &[i64],
) -> Result<HashMap<i64, PostedTotals>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT seq, prepaid_after + held_after + promo_after + disputed_after AS "whole!",
             prepaid_after + promo_after AS "available!"
           FROM ledger_postings WHERE org_id = $1 AND seq = ANY ($2)"#,
        org.uuid(),
        seqs,
    )
    .fetch_all(conn)
    .await?;
    let totals = |whole_minor, available_minor| PostedTotals { whole_minor, available_minor };
    Ok(rows.into_iter().map(|row| (row.seq, totals(row.whole, row.available))).collect())
}

/// A line with an allocation.
pub struct AllocationLine {
    pub seq: i64,
    pub allocation: AllocationId,
    pub project: Option<ProjectId>,
    pub sku: Option<String>,
    pub units: Option<i32>,
}

/// The first lines of each posting that are about an allocation, at most `limit` of each: a posting may have thousands.
pub async fn allocation_lines(
    conn: &mut Connection,
    org: OrgId,
    (seqs, posted_at): (&[i64], &[DateTime<Utc>]),
    limit: i64,
) -> Result<Vec<AllocationLine>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.seq AS "seq!", l.allocation_id AS "allocation_id!", l.project_id, m.sku AS "sku?", m.units AS "units?"
           FROM unnest($2::bigint[], $3::timestamptz[]) AS p (seq, posted_at)
           CROSS JOIN LATERAL (
               SELECT l.allocation_id, l.project_id, l.meter_id, l.line FROM ledger_lines l
               WHERE l.org_id = $1 AND l.seq = p.seq AND l.posted_at = p.posted_at AND l.allocation_id IS NOT NULL
               ORDER BY l.line LIMIT $4
           ) AS l
           LEFT JOIN meters m ON m.id = l.meter_id AND m.org_id = $1
           ORDER BY p.seq, l.line"#,
        org.uuid(),
        seqs,
        posted_at,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| AllocationLine {
            seq: row.seq,
            allocation: AllocationId::from(row.allocation_id),
            project: row.project_id.map(ProjectId::from),
            sku: row.sku,
            units: row.units,
        })
        .collect())
}
