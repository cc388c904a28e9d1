//! Budgets of projects.

use endpoint::{
    Empty, Endpoint, In, Json, NoContent, OrgPath, ProjectPath, ScopeKind, Write, delete, get, put,
};
use kernel::{Code, Failure, Page, PageQuery, Permission};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Billing,
    model::budget_resource::{Budget, BudgetAction, BudgetWanted},
    service::budgets::{budget_delete, budget_get, budget_list, budget_set},
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/billing/budgets", "budget_list", "List the budgets of an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(billing.clone(), list),
        get("/api/v1/projects/{project_id}/budget", "budget_get", "Show the budget of a project")
            .in_scope(ScopeKind::Project)
            .needs(Permission::UsageRead)
            .handle(billing.clone(), show),
        put("/api/v1/projects/{project_id}/budget", "budget_set", "Set the budget of a project")
            .describe("For a calendar month (UTC). When the threshold is reached, people are notified; `block` and `release` also refuse new launches until the next month, and `release` releases running allocations.")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::BudgetManage)
            .audited("budget.set")
            .handle(billing.clone(), set),
        delete("/api/v1/projects/{project_id}/budget", "budget_delete", "Remove the budget of a project")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::BudgetManage)
            .audited("budget.delete")
            .handle(billing.clone(), remove),
    ]
}

const fn whole() -> i32 {
    100
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BudgetSet {
    amount_minor: i64,
    /// Of the amount, 1 to 100; 100 when absent.
    #[serde(default = "whole")]
    threshold_percent: i32,
    action: BudgetAction,
}

async fn list(
    billing: Billing,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Budget>>, Failure> {
    Ok(Json(budget_list(&billing, &mut tx, input.path.org_id, &input.query).await?))
}

async fn show(
    billing: Billing,
    mut tx: ReadTx,
    input: In<ProjectPath, Empty, ()>,
) -> Result<Json<Budget>, Failure> {
    let org = input.access.org()?;
    Ok(Json(budget_get(&billing, &mut tx, org, input.path.project_id).await?))
}

async fn set(
    billing: Billing,
    mut tx: Write,
    input: In<ProjectPath, Empty, Json<BudgetSet>>,
) -> Result<Json<Budget>, Failure> {
    let (place, body) = ((input.access.org()?, input.path.project_id), input.body.0);
    let wanted = BudgetWanted {
        amount_minor: body.amount_minor,
        threshold_percent: body.threshold_percent,
        action: body.action,
    };
    Ok(Json(budget_set(&billing, &mut tx, place, wanted, input.if_match).await?))
}

async fn remove(
    billing: Billing,
    mut tx: Write,
    input: In<ProjectPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let place = (input.access.org()?, input.path.project_id);
    budget_delete(&billing, &mut tx, place, input.if_match).await?;
    Ok(NoContent)
}
