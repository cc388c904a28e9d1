//! Budgets: set, seen and removed. What a project spends is added up with every accrual (`service/budget_watch`), and a
//! changed budget is looked at again there.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, Page, PageQuery,
    ids::{OrgId, ProjectId},
};
use pg::{Connection, ReadTx, WriteTx, found, removed};

use crate::{
    Billing,
    model::{
        budget::month_of,
        budget_resource::{Budget, BudgetWanted},
    },
    service::balance::agreed_time,
    store::{budget_rows as store, budgets as spending},
};

async fn load(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
) -> Result<Option<Budget>, Failure> {
    let now = billing.db.ambient().now();
    let budget = store::get(conn, org, project, month_of(now).0, billing.currency()).await?;
    Ok(with_spending(conn, org, budget.into_iter().collect(), now).await?.pop())
}

/// With what was spent up to now, whether it was posted or not.
async fn with_spending(
    conn: &mut Connection,
    org: OrgId,
    budgets: Vec<Budget>,
    now: DateTime<Utc>,
) -> Result<Vec<Budget>, Failure> {
    if budgets.is_empty() {
        return Ok(budgets);
    }
    let until = agreed_time(conn, now).await?;
    let projects: Vec<_> = budgets.iter().map(|budget| budget.project_id.uuid()).collect();
    let watched = spending::watched(conn, &[org.uuid()], Some(&projects), month_of(now), until).await?;
    let spent = |budget: &Budget| watched.iter().find(|watched| watched.project == budget.project_id);
    Ok(budgets
        .into_iter()
        .map(|budget| match spent(&budget) {
            Some(watched) => budget.with_spending(&watched.spending),
            None => budget,
        })
        .collect())
}

/// Whether something ends the spending of the project: a budget that blocks launches or releases what runs.
pub async fn project_is_limited(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
) -> Result<bool, Failure> {
    Ok(store::is_limited(conn, org, project).await?)
}

pub async fn budget_get(
    billing: &Billing,
    tx: &mut ReadTx,
    org: OrgId,
    project: ProjectId,
) -> Result<Budget, Failure> {
    Ok(found(load(billing, tx.conn(), org, project).await?, "budget")?)
}

pub async fn budget_list(
    billing: &Billing,
    tx: &mut ReadTx,
    org: OrgId,
    page: &PageQuery,
) -> Result<Page<Budget>, Failure> {
    let now = billing.db.ambient().now();
    let rows = store::list(tx.conn(), org, page, month_of(now).0, billing.currency()).await?;
    let rows = with_spending(tx.conn(), org, rows, now).await?;
    Ok(page.page(rows, |row| row.project_id.uuid()))
}

/// Makes the budget of a project, or changes it.
pub async fn budget_set(
    billing: &Billing,
    tx: &mut WriteTx,
    (org, project): (OrgId, ProjectId),
    wanted: BudgetWanted,
    version: Option<i64>,
) -> Result<Budget, Failure> {
    wanted.check()?;
    let before = load(billing, tx.conn(), org, project).await?;
    let now = billing.db.ambient().now();
    store::set(tx.conn(), org, project, &wanted, version, now).await?.or_problem("budget")?;
    let after = found(load(billing, tx.conn(), org, project).await?, "budget")?;
    tx.record("budget", project, before.as_ref(), Some(&after))?;
    Ok(after)
}

pub async fn budget_delete(
    billing: &Billing,
    tx: &mut WriteTx,
    (org, project): (OrgId, ProjectId),
    version: Option<i64>,
) -> Result<(), Failure> {
    let before = found(load(billing, tx.conn(), org, project).await?, "budget")?;
    store::remove(tx.conn(), org, project, version).await?.or_problem("budget")?;
    removed(tx, "budget", project, &before)
}
