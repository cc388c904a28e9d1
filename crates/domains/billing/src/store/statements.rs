//! What statements are made of.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, ProjectId};
use pg::Connection;

use crate::model::{
    account::{Balances, PostingKind},
    meter::MeterUnit,
    report::Span,
    statement::{Changes, StatementMovement, StatementUsage},
};

/// Where a ledger stood.
pub struct LedgerPosition {
    pub seq: i64,
    pub posted_at: DateTime<Utc>,
    pub currency: String,
    pub balances: Balances,
}

/// Where it stood before a time: its last posting until then.
pub async fn position_before(
    conn: &mut Connection,
    org: OrgId,
    before: DateTime<Utc>,
) -> Result<Option<LedgerPosition>, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT seq, posted_at, currency, prepaid_after, held_after, promo_after, disputed_after FROM ledger_postings
         WHERE org_id = $1 AND posted_at < $2 ORDER BY seq DESC LIMIT 1",
        org.uuid(),
        before,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| LedgerPosition {
        seq: row.seq,
        posted_at: row.posted_at,
        currency: row.currency,
        balances: Balances {
            prepaid_minor: row.prepaid_after,
            held_minor: row.held_after,
            promo_minor: row.promo_after,
            disputed_minor: row.disputed_after,
        },
    }))
}

/// What the organization's accounts gained, by the kind of posting.
pub async fn changes(
    conn: &mut Connection,
    org: OrgId,
    span: Span,
    through: i64,
) -> Result<Changes, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.kind AS "kind: PostingKind", sum(l.amount_minor)::bigint AS "amount!"
           FROM ledger_postings p JOIN ledger_lines l ON l.org_id = p.org_id AND l.seq = p.seq AND l.posted_at = p.posted_at
           WHERE p.org_id = $1 AND p.posted_at >= $2 AND p.posted_at < $3 AND p.seq <= $4
               AND l.account IN ('prepaid', 'held', 'promo', 'disputed')
           GROUP BY p.kind"#,
        org.uuid(),
        span.from,
        span.to,
        through,
    )
    .fetch_all(conn)
    .await?;
    let mut changes = Changes::default();
    for row in rows {
        changes.add(row.kind, row.amount);
    }
    Ok(changes)
}

/// What was charged, by project and product.
pub async fn usage(
    conn: &mut Connection,
    org: OrgId,
    span: Span,
    through: i64,
) -> Result<Vec<StatementUsage>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT m.project_id, m.sku, m.unit AS "unit: MeterUnit", sum(r.amount_minor)::bigint AS "amount!",
             sum(m.units * extract(epoch FROM r.window_end - r.window_start)::bigint)::bigint AS "unit_seconds!"
           FROM usage_records r JOIN meters m ON m.id = r.meter_id
           WHERE r.org_id = $1 AND m.org_id = $1 AND r.posted_at >= $2 AND r.posted_at < $3 AND r.kind = 'usage'
               AND coalesce(r.seq, 0) <= $4
           GROUP BY m.project_id, m.sku, m.unit ORDER BY m.project_id, m.sku, m.unit"#,
        org.uuid(),
        span.from,
        span.to,
        through,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| StatementUsage {
            project_id: ProjectId::from(row.project_id),
            project_name: None,
            sku: row.sku,
            product_name: None,
            unit: row.unit,
            unit_seconds: row.unit_seconds,
            amount_minor: row.amount,
        })
        .collect())
}

/// The first postings that are neither usage nor a hold, and how many there are.
pub async fn movements(
    conn: &mut Connection,
    org: OrgId,
    span: Span,
    through: i64,
    limit: i64,
) -> Result<(Vec<StatementMovement>, i64), sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.seq, p.posted_at, p.kind AS "kind: PostingKind", p.reason, p.found AS "found!", sum(l.amount_minor)::bigint AS "amount!",
             CASE WHEN count(DISTINCT l.allocation_id) = 1 THEN min(l.allocation_id::text)::uuid END AS allocation_id
           FROM (
             SELECT seq, posted_at, kind, reason, count(*) OVER () AS found FROM ledger_postings
             WHERE org_id = $1 AND posted_at >= $2 AND posted_at < $3 AND seq <= $4
                 AND kind NOT IN ('usage', 'hold', 'hold_release')
             ORDER BY seq LIMIT $5
           ) AS p
           JOIN ledger_lines l ON l.org_id = $1 AND l.seq = p.seq AND l.posted_at = p.posted_at
               AND l.account IN ('prepaid', 'held', 'promo', 'disputed')
           GROUP BY p.seq, p.posted_at, p.kind, p.reason, p.found ORDER BY p.seq"#,
        org.uuid(),
        span.from,
        span.to,
        through,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let all = rows.first().map_or(0, |row| row.found);
    let shown = rows.into_iter().map(|row| StatementMovement {
        seq: row.seq,
        posted_at: row.posted_at,
        kind: row.kind,
        reason: row.reason,
        amount_minor: row.amount,
        allocation_id: row.allocation_id.map(AllocationId::from),
        allocation_name: None,
    });
    Ok((shown.collect(), all))
}

pub async fn first_posted(conn: &mut Connection, org: OrgId) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT posted_at FROM ledger_postings WHERE org_id = $1 ORDER BY seq LIMIT 1",
        org.uuid()
    )
    .fetch_optional(conn)
    .await
}

pub async fn last_posted(conn: &mut Connection, org: OrgId) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!("SELECT posted_at FROM ledger_chains WHERE org_id = $1 AND seq > 0", org.uuid())
        .fetch_optional(conn)
        .await
}

/// What there was at the beginning and at the end of each span, and in which currency.
pub async fn span_balances(
    conn: &mut Connection,
    org: OrgId,
    spans: &[Span],
) -> Result<Vec<(i64, i64, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT coalesce(o.whole, 0) AS "opening!", coalesce(e.whole, 0) AS "closing!", c.currency AS "currency!"
           FROM unnest($2::timestamptz[], $3::timestamptz[]) WITH ORDINALITY AS s (starts, ends, n)
           JOIN ledger_chains c ON c.org_id = $1
           LEFT JOIN LATERAL (
             SELECT prepaid_after + held_after + promo_after + disputed_after AS whole FROM ledger_postings
             WHERE org_id = $1 AND posted_at < s.starts ORDER BY seq DESC LIMIT 1
           ) AS o ON true
           LEFT JOIN LATERAL (
             SELECT prepaid_after + held_after + promo_after + disputed_after AS whole FROM ledger_postings
             WHERE org_id = $1 AND posted_at < s.ends ORDER BY seq DESC LIMIT 1
           ) AS e ON true
           ORDER BY s.n"#,
        org.uuid(),
        &spans.iter().map(|span| span.from).collect::<Vec<_>>(),
        &spans.iter().map(|span| span.to).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.opening, row.closing, row.currency)).collect())
}
