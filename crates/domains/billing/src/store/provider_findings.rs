//! What our books and the payment provider's disagree about.

use chrono::{DateTime, Utc};
use kernel::ids::{BillingFindingId, OrgId};
use pg::Connection;
use serde_json::Value;

/// Opens one, or renews it while it is open. Whether it is new.
pub async fn upsert(
    conn: &mut Connection,
    id: BillingFindingId,
    kind: &str,
    subject: &str,
    org: Option<OrgId>,
    detail: &Value,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"INSERT INTO billing_findings AS f (id, kind, subject, org_id, detail, first_seen_at, last_seen_at)
           VALUES ($1, $2, $3, $4, $5, $6, $6)
           ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
               DO UPDATE SET detail = excluded.detail, last_seen_at = excluded.last_seen_at
           RETURNING f.xmax = 0 AS "new!""#,
        id.uuid(),
        kind,
        subject,
        org.map(OrgId::uuid),
        detail,
        now,
    )
    .fetch_one(conn)
    .await
}

/// Closes one that is open.
pub async fn resolve(
    conn: &mut Connection,
    kind: &str,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE billing_findings SET resolved_at = $3 WHERE kind = $1 AND subject = $2 AND resolved_at IS NULL",
        kind,
        subject,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Resolves the findings of a day that were not found again.
pub async fn resolve_missing(
    conn: &mut Connection,
    day: &str,
    seen: &[String],
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE billing_findings SET resolved_at = $3
         WHERE kind IN ('provider_missing', 'provider_extra', 'provider_amount') AND resolved_at IS NULL
           AND detail ->> 'day' = $1 AND NOT (kind || ' ' || subject = ANY ($2))",
        day,
        seen,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
