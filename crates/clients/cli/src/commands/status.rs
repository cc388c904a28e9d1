//! `gpuaas status`: one screen for whoever uses machines.

use chrono::{DateTime, Utc};
use clap::Args as ClapArgs;
use sdk::{Client, types};
use serde::Serialize;

use super::allocations::{COLUMNS, per_hour};
use crate::{
    app::App,
    args::{Format, Watch},
    failure::{Exit, Result, local},
    output::{money, relative},
    resolve,
    resources::names::{self, Scope},
};

/// More projects than this are not looked into.
const PROJECTS: usize = 50;

#[derive(ClapArgs)]
pub struct Command {
    #[command(flatten)]
    watch: Watch,
}

#[derive(Serialize)]
struct Status {
    org: types::OrgDetails,
    /// Missing for whoever may not see money.
    balance: Option<types::Balance>,
    allocations: Vec<types::Allocation>,
    unread_notifications: Vec<types::Notification>,
    budgets: Vec<types::Budget>,
    attention: Vec<String>,
}

pub async fn run(app: &App, command: Command) -> Result {
    let Command { watch: _ } = command;
    let client = &app.client().await?;
    let org = resolve::org(app, client).await?;
    let projects: Vec<types::Project> =
        pages!(Some(PROJECTS), |page| client.project_list(&org, page.cursor(), page.size()))?;
    let mut status = Status {
        org: send!(client.org_get(&org)),
        balance: allowed(async { Ok(send!(client.billing_balance_get(&org))) }.await)?,
        allocations: live(client, &projects).await?,
        unread_notifications: pages!(Some(20), |page| client.notification_list(
            page.cursor(),
            page.size(),
            Some(true)
        ))?,
        budgets: allowed(budgets(client, &org).await)?.unwrap_or_default(),
        attention: Vec::new(),
    };
    status.attention = attention(&status, &projects);
    if app.out.format != Format::Table {
        return app.out.page(&status, &lines(&status, app.ambient.now()), "");
    }
    names::learn(app, client, &Scope::Org(&org), &status.allocations).await;
    app.out.page(&status, &lines(&status, app.ambient.now()), &below(&status, &projects))?;
    if status.allocations.is_empty() {
        return Ok(());
    }
    let priced = |one: &types::Allocation| {
        let mut row = serde_json::to_value(one).map_err(local("the result cannot be printed"))?;
        row["per_hour_minor"] = per_hour(one).into();
        Ok(row)
    };
    app.out.priced(&status.allocations.iter().map(priced).collect::<Result<Vec<_>>>()?, COLUMNS)
}

/// None of what the caller may not see.
fn allowed<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.exit == Exit::Auth => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn budgets(client: &Client, org: &str) -> Result<Vec<types::Budget>> {
    Ok(pages!(Some(PROJECTS), |page| client.budget_list(org, page.cursor(), page.size()))?)
}

async fn live(client: &Client, projects: &[types::Project]) -> Result<Vec<types::Allocation>> {
    let (group_id, state, live) = (None, None, Some(types::AllocationListLive::True));
    let mut all = Vec::new();
    for project in projects {
        let found: Vec<types::Allocation> = pages!(None, |page| client.allocation_list(
            &project.id,
            page.cursor(),
            group_id,
            live,
            page.size(),
            state
        ))?;
        all.extend(found);
    }
    Ok(all)
}

/// What somebody should look at, most urgent first.
fn attention(status: &Status, projects: &[types::Project]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reason) = &status.org.suspended_reason {
        lines.push(format!("The organization is suspended: {reason}"));
    }
    if let Some(balance) = &status.balance {
        match balance.state {
            types::BalanceState::Depleted => {
                lines.push("The balance is used up: machines are being released. Top up now.".to_owned());
            }
            types::BalanceState::AutoReleasePending => {
                lines.push("The balance ends soon, and machines are then released. Top up now.".to_owned());
            }
            types::BalanceState::LowBalance => lines.push("The balance is low.".to_owned()),
            types::BalanceState::Healthy => {}
        }
    }
    for one in &status.allocations {
        if one.state == types::AllocationState::ReleaseFailed {
            lines.push(format!("{} could not be released: {}", one.name, one.state_reason));
        }
    }
    for budget in
        status.budgets.iter().filter(|budget| budget.spent_percent >= i64::from(budget.threshold_percent))
    {
        let project = projects.iter().find(|project| project.id.as_str() == budget.project_id.as_str());
        let name = project.map_or_else(|| budget.project_id.to_string(), |project| project.slug.to_string());
        lines.push(format!("The budget of {name} is spent to {} %.", budget.spent_percent));
    }
    let urgent = status.unread_notifications.iter().filter(|one| one.severity != types::NoticeSeverity::Info);
    lines.extend(urgent.map(|one| one.title.clone()));
    lines
}

fn lines(status: &Status, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let running = status.allocations.len();
    let mut lines = vec![
        ("organization", format!("{} ({})", status.org.name, status.org.slug)),
        ("machines", if running == 0 { "none".to_owned() } else { format!("{running}") }),
    ];
    if let Some(balance) = &status.balance {
        let amount = |minor| money(minor, &balance.currency);
        let available = amount(balance.available_minor);
        lines.push(("balance", format!("{available} available ({})", balance.state)));
        if balance.held_minor != 0 {
            lines.push(("on hold", amount(balance.held_minor)));
        }
        lines.push(("spending", format!("{} per hour", amount(balance.burn_per_hour_minor))));
        let ends = balance.projected_depletion_at.map(|at| relative(now, at));
        lines.push(("ends", ends.unwrap_or_default()));
    }
    let unread = status.unread_notifications.len();
    let unread = if unread == 0 { String::new() } else { format!("{unread} unread") };
    lines.push(("notifications", unread));
    lines.push(("attention", status.attention.join("\n")));
    lines
}

fn below(status: &Status, projects: &[types::Project]) -> String {
    let empty = |minor: i64| minor <= 0;
    let next = if projects.is_empty() {
        "gpuaas projects create training"
    } else if status.balance.as_ref().is_some_and(|balance| empty(balance.available_minor)) {
        "gpuaas billing topup 50.00"
    } else if status.allocations.is_empty() {
        "gpuaas catalog"
    } else {
        return "\n".to_owned();
    };
    format!("\nNext:\n  {next}\n")
}
