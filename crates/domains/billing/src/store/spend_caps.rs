//! Spend caps of service accounts, and what the accounts have spent. Whoever writes progress holds the chains of these
//! organizations.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::{
    Failure, Problem,
    ids::{OrgId, ProjectId, ServiceAccountId},
};
use pg::{Connection, Swap, WriteTx};
use uuid::Uuid;

use crate::model::spend_cap::{CapSpending, SpendCap};

/// The cap of an account, with what was spent and is left; `currency` is that of organizations without a ledger.
pub async fn get(
    conn: &mut Connection,
    (org, project): (OrgId, ProjectId),
    account: ServiceAccountId,
    now: DateTime<Utc>,
    currency: &str,
) -> Result<Option<SpendCap>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT c.amount_minor, c.version, c.created_at, c.updated_at, s.currency AS "currency?",
             s.spent AS "spent?", s.unposted AS "unposted?", s.reserved AS "reserved?", s.reached_at AS "reached_at?"
           FROM spend_caps c LEFT JOIN spend_cap_spending(ARRAY[$1::uuid], ARRAY[$2::uuid], $3) AS s ON true
           WHERE c.org_id = $1 AND c.service_account_id = $2 AND c.project_id = $4"#,
        org.uuid(),
        account.uuid(),
        now,
        project.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SpendCap {
        service_account_id: account,
        project_id: project,
        amount_minor: row.amount_minor,
        currency: row.currency.unwrap_or_else(|| currency.to_owned()),
        spent_minor: row.spent.unwrap_or(0).saturating_add(row.unposted.unwrap_or(0)),
        left_minor: left(row.amount_minor, row.spent.unwrap_or(0), row.reserved.unwrap_or(0)),
        reached_at: row.reached_at,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }))
}

/// As `spend_cap_left` decides.
fn left(amount_minor: i64, spent: i64, reserved: i64) -> i64 {
    amount_minor.saturating_sub(spent).saturating_sub(reserved).clamp(0, amount_minor)
}

/// Makes or changes a cap; with `version`, only when that is the current one.
pub async fn set(
    conn: &mut Connection,
    (org, project): (OrgId, ProjectId),
    account: ServiceAccountId,
    amount_minor: i64,
    version: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<()>, Failure> {
    let done = sqlx::query!(
        "INSERT INTO spend_caps AS c (service_account_id, org_id, project_id, amount_minor, counted_from_seq, created_at,
             updated_at)
         SELECT $1, $2, $3, $4, coalesce((SELECT seq FROM ledger_chains WHERE org_id = $2), 0), $5, $5
         WHERE $6::bigint IS NULL OR EXISTS (SELECT FROM spend_caps WHERE service_account_id = $1 AND version = $6)
         ON CONFLICT (service_account_id) DO UPDATE SET amount_minor = excluded.amount_minor, version = c.version + 1,
             updated_at = excluded.updated_at
         WHERE $6::bigint IS NULL OR c.version = $6",
        account.uuid(),
        org.uuid(),
        project.uuid(),
        amount_minor,
        now,
        version,
    )
    .execute(&mut *conn)
    .await
    .map_err(|error| match pg::constraint_violated(&error) {
        // Deleted after the request was let in.
        Some("spend_caps_project") => Problem::not_found("project").into(),
        _ => Failure::from(error),
    })?;
    swap(conn, org, account, done.rows_affected()).await
}

/// Whether the account runs or launches something. The cap is locked: no launch that relies on it begins before this
/// transaction ends.
pub async fn lock_and_find_live(
    conn: &mut Connection,
    org: OrgId,
    account: ServiceAccountId,
) -> Result<bool, sqlx::Error> {
    sqlx::query!(
        "SELECT version FROM spend_caps WHERE org_id = $1 AND service_account_id = $2 FOR UPDATE",
        org.uuid(),
        account.uuid()
    )
    .fetch_optional(&mut *conn)
    .await?;
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM meters WHERE org_id = $1 AND person_id = $2 AND state IN ('held', 'open', 'paused'))
               AS "live!""#,
        org.uuid(),
        account.uuid(),
    )
    .fetch_one(conn)
    .await
}

/// Removes a cap; with `version`, only when that is the current one.
pub async fn remove(
    conn: &mut Connection,
    org: OrgId,
    account: ServiceAccountId,
    version: Option<i64>,
) -> Result<Swap<()>, Failure> {
    let done = sqlx::query!(
        "DELETE FROM spend_caps WHERE org_id = $1 AND service_account_id = $2 AND ($3::bigint IS NULL OR version = $3)",
        org.uuid(),
        account.uuid(),
        version,
    )
    .execute(&mut *conn)
    .await?;
    swap(conn, org, account, done.rows_affected()).await
}

async fn swap(
    conn: &mut Connection,
    org: OrgId,
    account: ServiceAccountId,
    affected: u64,
) -> Result<Swap<()>, Failure> {
    if affected == 1 {
        return Ok(Swap::from_update(Some(()), None));
    }
    let current = sqlx::query_scalar!(
        "SELECT version FROM spend_caps WHERE org_id = $1 AND service_account_id = $2",
        org.uuid(),
        account.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(Swap::from_update(None, current))
}

/// Whether the account has a cap.
pub async fn exists(conn: &mut Connection, org: OrgId, account: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM spend_caps WHERE org_id = $1 AND service_account_id = $2) AS "found!""#,
        org.uuid(),
        account,
    )
    .fetch_one(conn)
    .await
}

/// A cap with the spending of the month added up to the end of the ledger.
pub struct WatchedCap {
    pub org: OrgId,
    pub project: ProjectId,
    pub account: ServiceAccountId,
    pub currency: String,
    pub spending: CapSpending,
    pub month: NaiveDate,
    /// The end of the ledger, and how far it was added up before.
    pub seq: i64,
    pub through_seq: i64,
}

/// The caps of these organizations, or of some of their accounts.
pub async fn watched(
    conn: &mut Connection,
    orgs: &[Uuid],
    accounts: Option<&[Uuid]>,
    now: DateTime<Utc>,
) -> Result<Vec<WatchedCap>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT service_account_id AS "account!", org_id AS "org!", project_id AS "project!", amount_minor AS "amount!",
             updated_at AS "updated_at!", currency AS "currency!", seq AS "seq!", month AS "month!", through_seq AS "through!",
             reached_at AS "reached_at?", spent AS "spent!", unposted AS "unposted!"
           FROM spend_cap_spending($1, $2, $3)"#,
        orgs,
        accounts,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| WatchedCap {
            org: OrgId::from(row.org),
            project: ProjectId::from(row.project),
            account: ServiceAccountId::from(row.account),
            currency: row.currency,
            spending: CapSpending {
                amount_minor: row.amount,
                spent_minor: row.spent,
                unposted_minor: row.unposted,
                reached_at: row.reached_at,
                updated_at: row.updated_at,
            },
            month: row.month,
            seq: row.seq,
            through_seq: row.through,
        })
        .collect())
}

/// How far caps were added up now, and when they were reached. One that was removed in the meantime is not watched any more.
pub async fn progress(
    tx: &mut WriteTx,
    caps: &[(WatchedCap, Option<DateTime<Utc>>)],
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO spend_cap_progress (service_account_id, org_id, month, spent_minor, through_seq, reached_at)
         SELECT c.service_account_id, c.org_id, p.month, p.spent, p.through, p.reached_at
         FROM unnest($1::uuid[], $2::date[], $3::bigint[], $4::bigint[], $5::timestamptz[])
             AS p (account, month, spent, through, reached_at)
         JOIN spend_caps c ON c.service_account_id = p.account
         ON CONFLICT (service_account_id) DO UPDATE SET month = excluded.month, spent_minor = excluded.spent_minor,
             through_seq = excluded.through_seq, reached_at = excluded.reached_at",
        &caps.iter().map(|(cap, _)| cap.account.uuid()).collect::<Vec<_>>(),
        &caps.iter().map(|(cap, _)| cap.month).collect::<Vec<_>>(),
        &caps.iter().map(|(cap, _)| cap.spending.spent_minor).collect::<Vec<_>>(),
        &caps.iter().map(|(cap, _)| cap.seq).collect::<Vec<_>>(),
        &caps.iter().map(|(_, reached_at)| *reached_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Accounts that reached their cap in this month and still run or launch something; after this one, by id.
pub async fn overdue(
    conn: &mut Connection,
    after: ServiceAccountId,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, ServiceAccountId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT g.org_id, g.service_account_id FROM spend_cap_progress g
         WHERE g.service_account_id > $1 AND g.reached_at IS NOT NULL
             AND g.month = date_trunc('month', $2::timestamptz AT TIME ZONE 'UTC')::date
             AND EXISTS (SELECT FROM meters m WHERE m.org_id = g.org_id AND m.person_id = g.service_account_id
                 AND m.state IN ('held', 'open', 'paused'))
         ORDER BY g.service_account_id LIMIT $3",
        after.uuid(),
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id.into(), row.service_account_id.into())).collect())
}
