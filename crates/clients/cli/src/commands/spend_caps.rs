//! `gpuaas service-accounts spend-cap`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{billing, service_accounts::find_account};
use crate::{
    app::App,
    args::Confirm,
    failure::Result,
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// Show the spend cap of a service account: what it has spent this month and what is left.
    #[command(alias = "get")]
    Show {
        /// Service account, by name or id.
        account: String,
    },
    /// Set what a service account may spend per calendar month (UTC). When it is spent, what the account runs is released.
    Set {
        /// Service account, by name or id.
        account: String,
        /// Amount per calendar month, such as 100.00.
        #[arg(long)]
        amount: String,
    },
    /// Delete the spend cap of a service account.
    Delete {
        /// Service account, by name or id.
        account: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("SERVICE ACCOUNT", "service_account_id"),
    ("SPENT", "spent"),
    ("CAP", "amount"),
    ("LEFT", "left"),
    ("REACHED", "reached_at"),
    ("PROJECT", "project_id"),
];

pub async fn run(app: &App, client: &Client, project: &str, command: Command) -> Result {
    match command {
        Command::Show { account } => {
            let id = find_account(client, project, &account).await?;
            app.out.priced_item(&send!(client.spend_cap_get(project, &id)), COLUMNS)
        }
        Command::Set { account, amount: text } => {
            let id = find_account(client, project, &account).await?;
            let amount_minor = amount(app, client, &text).await?;
            app.out.priced_item(&set(client, project, &id, amount_minor).await?, COLUMNS)
        }
        Command::Delete { account, confirm } => {
            let id = find_account(client, project, &account).await?;
            let lost = format!(
                "Delete the spend cap of {account}: it then launches only where a budget releases what runs"
            );
            app.confirm(&confirm, &lost)?;
            send!(client.spend_cap_delete(project, &id));
            note(&format!("Deleted the spend cap of {account}."));
            Ok(())
        }
    }
}

/// A decimal amount in the currency of the organization's ledger.
pub async fn amount(app: &App, client: &Client, text: &str) -> Result<i64> {
    let org = resolve::org(app, client).await?;
    billing::Purse { app, client, org }.amount(text).await
}

pub async fn set(
    client: &Client,
    project: &str,
    account: &str,
    amount_minor: i64,
) -> Result<types::SpendCap> {
    Ok(send!(client.spend_cap_set(project, account, &types::SpendCapSet { amount_minor })))
}
