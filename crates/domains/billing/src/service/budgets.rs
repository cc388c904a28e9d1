//! Budgets: set, seen and removed. What a project spends is added up with every accrual (`service/budget_watch`), and a
//! changed budget is looked at again there.

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
    store::budget_rows as store,
};

async fn load(
    billing: &Billing,
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
) -> Result<Option<Budget>, Failure> {
    let month = month_of(billing.db.ambient().now()).0;
    Ok(store::get(conn, org, project, month, billing.currency()).await?)
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
    let month = month_of(billing.db.ambient().now()).0;
    let rows = store::list(tx.conn(), org, page, month, billing.currency()).await?;
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
