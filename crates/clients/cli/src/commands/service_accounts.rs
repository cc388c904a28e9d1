//! `gpuaas service-accounts`.

use clap::Subcommand;
use sdk::{Client, types};

use super::field;
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the service accounts of the project.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a service account.
    Get { account: String },
    /// Create a service account.
    Create { name: String },
    /// Change a service account's name.
    Rename { account: String, name: String },
    /// Enable a disabled service account.
    Enable { account: String },
    /// Disable a service account without deleting it; its keys stop working immediately.
    Disable { account: String },
    /// Delete a service account and its keys.
    Delete {
        account: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Keys of a service account.
    #[command(subcommand)]
    Keys(KeysCommand),
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// List the keys, without their secrets.
    List {
        account: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a key. It is shown only once.
    Create {
        account: String,
        /// Days until the key expires; by default it does not expire.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3650))]
        expires_in_days: Option<u16>,
    },
    /// Revoke a key; it stops working immediately.
    Revoke { account: String, key: String },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("PROJECT", "project_id"),
    ("CREATED", "created_at"),
];
const KEYS: Columns = &[
    ("ID", "id"),
    ("STATE", "state"),
    ("EXPIRES", "expires_at"),
    ("LAST USED", "last_used_at"),
    ("CREATED", "created_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    match command {
        Command::List { limit } => {
            let list: Vec<types::ServiceAccount> = pages!(limit.get(), |page| client.service_account_list(
                &project,
                page.cursor(),
                page.size()
            ))?;
            app.out.list(&list, COLUMNS)
        }
        Command::Get { account } => {
            app.out.item(&send!(client.service_account_get(&project, &account)), COLUMNS)
        }
        Command::Create { name } => {
            let body = types::ServiceAccountCreate { name };
            app.out.item(&send!(client.service_account_create(&project, &body)), COLUMNS)
        }
        Command::Rename { account, name } => {
            let body = types::ServiceAccountUpdate { name: Some(name), disabled: None };
            update(app, &client, project, account, body).await
        }
        Command::Enable { account } => {
            let body = types::ServiceAccountUpdate { name: None, disabled: Some(false) };
            update(app, &client, project, account, body).await
        }
        Command::Disable { account } => {
            let body = types::ServiceAccountUpdate { name: None, disabled: Some(true) };
            update(app, &client, project, account, body).await
        }
        Command::Delete { account, confirm } => {
            app.confirm(&confirm, &format!("Delete {account} and its keys"))?;
            send!(client.service_account_delete(&project, &account));
            note(&format!("Deleted {account}."));
            Ok(())
        }
        Command::Keys(command) => keys(app, &client, project, command).await,
    }
}

async fn update(
    app: &App,
    client: &Client,
    project: String,
    account: String,
    body: types::ServiceAccountUpdate,
) -> Result {
    app.out.item(&send!(client.service_account_update(&project, &account, &body)), COLUMNS)
}

async fn keys(app: &App, client: &Client, project: String, command: KeysCommand) -> Result {
    match command {
        KeysCommand::List { account, limit } => {
            let list: Vec<types::ServiceAccountKey> = pages!(limit.get(), |page| client
                .service_account_key_list(&project, &account, page.cursor(), page.size()))?;
            app.out.list(&list, KEYS)
        }
        KeysCommand::Create { account, expires_in_days } => {
            let body = types::ServiceAccountKeyCreate {
                expires_in_days: expires_in_days
                    .map(|days| field("expires_in_days", days.to_string()))
                    .transpose()?,
            };
            let made = send!(client.service_account_key_create(&project, &account, &body));
            note("Store the key safely: it is shown only once.");
            app.out.item(&made, KEYS)
        }
        KeysCommand::Revoke { account, key } => {
            send!(client.service_account_key_revoke(&project, &account, &key));
            note(&format!("Revoked {key}."));
            Ok(())
        }
    }
}
