//! The numbers of statements: written once, by the billing worker.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::ids::OrgId;
use pg::{Connection, WriteTx};
use sqlx::types::Json;
use uuid::Uuid;

use crate::model::particulars::Particulars;

/// What a statement of an ended month was issued with.
pub struct Issued {
    pub number: i64,
    pub issued_at: DateTime<Utc>,
    pub particulars: Particulars,
}

pub async fn issued(
    conn: &mut Connection,
    org: OrgId,
    month: NaiveDate,
) -> Result<Option<Issued>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT number, issued_at, particulars AS "particulars: Json<Particulars>" FROM statement_numbers
           WHERE org_id = $1 AND month = $2"#,
        org.uuid(),
        month,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Issued { number: row.number, issued_at: row.issued_at, particulars: row.particulars.0 }))
}

/// The numbers of these months, by month.
pub async fn numbers(
    conn: &mut Connection,
    org: OrgId,
    months: &[NaiveDate],
) -> Result<Vec<(NaiveDate, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT month, number FROM statement_numbers WHERE org_id = $1 AND month = ANY ($2)",
        org.uuid(),
        months,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.month, row.number)).collect())
}

/// A statement without a number whose month has ended.
pub struct Unnumbered {
    pub org: OrgId,
    pub month: NaiveDate,
}

/// The oldest of them, at most `limit`; `this_month` has not ended. Organizations whose last month has a number are not
/// looked at.
pub async fn unnumbered(
    conn: &mut Connection,
    this_month: NaiveDate,
    limit: i64,
) -> Result<Vec<Unnumbered>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.org_id AS "org_id!", m.month::date AS "month!"
           FROM ledger_chains c
           CROSS JOIN LATERAL (
               SELECT p.posted_at FROM ledger_postings p WHERE p.org_id = c.org_id ORDER BY p.seq LIMIT 1
           ) AS first
           CROSS JOIN LATERAL (
               SELECT max(n.month) + interval '1 month' AS month FROM statement_numbers n WHERE n.org_id = c.org_id
           ) AS next
           CROSS JOIN LATERAL generate_series(
               coalesce(next.month, date_trunc('month', first.posted_at AT TIME ZONE 'UTC')),
               $1::date::timestamp - interval '1 month', interval '1 month') AS m (month)
           WHERE c.seq > 0 AND NOT EXISTS (SELECT FROM statement_numbers n
               WHERE n.org_id = c.org_id AND n.month = ($1::date - interval '1 month')::date)
           ORDER BY m.month, c.org_id LIMIT $2"#,
        this_month,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| Unnumbered { org: OrgId::from(row.org_id), month: row.month }).collect())
}

/// Gives the next numbers, in this order. What has one already is left out and leaves no gap.
pub async fn issue(
    tx: &mut WriteTx,
    statements: &[(Unnumbered, Particulars)],
    now: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    let particulars: Result<Vec<_>, _> =
        statements.iter().map(|(_, particulars)| serde_json::to_value(particulars)).collect();
    sqlx::query_scalar!(
        r#"SELECT statement_numbers_issue($1, $2, $3, $4) AS "issued!""#,
        &statements.iter().map(|(one, _)| one.org.uuid()).collect::<Vec<Uuid>>(),
        &statements.iter().map(|(one, _)| one.month).collect::<Vec<_>>(),
        &particulars.map_err(|error| sqlx::Error::Encode(Box::new(error)))?,
        now,
    )
    .fetch_one(tx.conn())
    .await
}
