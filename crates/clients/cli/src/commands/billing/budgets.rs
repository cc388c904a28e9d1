//! Monthly budgets of projects.

use clap::{Subcommand, ValueEnum};
use sdk::types;

use super::Purse;
use crate::{
    args::{Confirm, Limit},
    commands::field,
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the budgets of all projects.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show the budget of a project.
    #[command(alias = "get")]
    Show,
    /// Set the budget of a project.
    Set {
        /// Amount per calendar month, such as 500.00.
        #[arg(long)]
        amount: String,
        /// Percentage of the amount at which the action is taken.
        #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
        threshold: u8,
        /// What happens at the threshold.
        #[arg(long, value_enum, default_value = "notify")]
        action: Action,
    },
    /// Delete the budget of a project.
    Delete {
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Action {
    /// Notify people.
    Notify,
    /// Notify, and refuse new launches.
    Block,
    /// Notify, refuse new launches, and release running allocations.
    Release,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::Block => "block",
            Self::Release => "release",
        }
    }
}

const COLUMNS: Columns = &[
    ("PROJECT", "project_id"),
    ("SPENT", "spent"),
    ("BUDGET", "amount"),
    ("PERCENT", "spent_percent"),
    ("ACTION", "action"),
    ("AT PERCENT", "threshold_percent"),
    ("CROSSED", "crossed_at"),
];

pub async fn run(purse: &Purse<'_>, command: Command) -> Result {
    let (app, client) = (purse.app, purse.client);
    if let Command::List { limit } = command {
        let found: Vec<types::Budget> =
            pages!(limit.get(), |page| client.budget_list(&purse.org, page.cursor(), page.size()))?;
        names::learn(app, client, &Scope::Org(&purse.org), &found).await;
        return app.out.priced(&found, COLUMNS);
    }
    let project = resolve::project(app, client).await?;
    match command {
        Command::List { .. } => Ok(()),
        Command::Show => app.out.priced_item(&send!(client.budget_get(&project)), COLUMNS),
        Command::Set { amount, threshold, action } => {
            let body = types::BudgetSet {
                amount_minor: purse.amount(&amount).await?,
                threshold_percent: i32::from(threshold),
                action: field("action", action.name())?,
            };
            app.out.priced_item(&send!(client.budget_set(&project, &body)), COLUMNS)
        }
        Command::Delete { confirm } => {
            app.confirm(
                &confirm,
                "Remove the budget: the project can then spend the organization's whole balance",
            )?;
            send!(client.budget_delete(&project));
            note("Removed the budget of the project.");
            Ok(())
        }
    }
}
