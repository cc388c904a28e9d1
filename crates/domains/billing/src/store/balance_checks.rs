//! The state of the balance, budget and meter of an organization, a project and an allocation.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, ProjectId};
use pg::{Connection, WriteTx};

use crate::model::balance::BalanceState;

/// Locks the end of the organization's chain; false when there is none.
pub async fn chain_lock(tx: &mut WriteTx, org: OrgId) -> Result<bool, sqlx::Error> {
    let held = sqlx::query_scalar!(
        r#"SELECT l.seq AS "seq!" FROM ledger_chains c, ledger_lock(c.org_id, c.currency) l WHERE c.org_id = $1"#,
        org.uuid()
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(held.is_some())
}

pub async fn state(conn: &mut Connection, org: OrgId) -> Result<Option<BalanceState>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT state AS "state: BalanceState" FROM billing_accounts WHERE org_id = $1"#,
        org.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn budget_releases(
    conn: &mut Connection,
    project: ProjectId,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM budgets b JOIN budget_progress g USING (project_id)
               WHERE b.project_id = $1 AND b.action = 'release' AND g.crossed_at IS NOT NULL
                   AND g.month = date_trunc('month', $2::timestamptz AT TIME ZONE 'UTC')::date
                   -- The budget may have been raised since.
                   AND (g.spent_minor + g.unposted_minor)::numeric * 100 >= b.amount_minor::numeric * b.threshold_percent) AS "over!""#,
        project.uuid(),
        now,
    )
    .fetch_one(conn)
    .await
}

/// Projects whose budget says that what they run ends, and that still run or launch something; after this one, by id.
pub async fn budgets_overdue(
    conn: &mut Connection,
    after: ProjectId,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, ProjectId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT b.org_id, b.project_id FROM budgets b JOIN budget_progress g USING (project_id)
         WHERE b.action = 'release' AND b.project_id > $1 AND g.crossed_at IS NOT NULL
             AND g.month = date_trunc('month', $2::timestamptz AT TIME ZONE 'UTC')::date
             AND (g.spent_minor + g.unposted_minor)::numeric * 100 >= b.amount_minor::numeric * b.threshold_percent
             AND EXISTS (SELECT FROM meters m WHERE m.org_id = b.org_id AND m.project_id = b.project_id
                 AND m.state IN ('held', 'open', 'paused'))
         ORDER BY b.project_id LIMIT $3",
        after.uuid(),
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id.into(), row.project_id.into())).collect())
}

pub async fn has_meter(conn: &mut Connection, allocation: AllocationId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM meters WHERE allocation_id = $1) AS "found!""#,
        allocation.uuid()
    )
    .fetch_one(conn)
    .await
}

/// Organizations whose balance was used up before `before` and that still have something that runs or is launched.
pub async fn overdue(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<OrgId>, sqlx::Error> {
    let orgs = sqlx::query_scalar!(
        "SELECT a.org_id FROM billing_accounts a WHERE a.state = 'depleted' AND a.state_changed_at <= $1
             AND EXISTS (SELECT FROM meters m WHERE m.org_id = a.org_id AND m.state IN ('held', 'open', 'paused'))
         ORDER BY a.state_changed_at LIMIT $2",
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(orgs.into_iter().map(OrgId::from).collect())
}
