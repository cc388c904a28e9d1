//! `gpuaas service-accounts`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, read_input, spend_caps, ssh_keys};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Failure, Result},
    output::{Columns, note},
    resolve,
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the service accounts of the project.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a service account.
    #[command(alias = "get")]
    Show {
        /// Service account, by name or id.
        account: String,
    },
    /// Create a service account.
    Create {
        /// Name, unique in the project.
        name: String,
        /// What it may do in the project: read, or also launch and release machines of its own.
        #[arg(long, value_enum, default_value = "reader")]
        role: AccountRole,
        /// File with a public key that logs in to the machines which it launches. May be given several times.
        #[arg(long, value_name = "FILE")]
        ssh_key: Vec<String>,
        /// What it may spend per calendar month, such as 100.00; see `gpuaas service-accounts spend-cap`.
        #[arg(long, value_name = "AMOUNT")]
        spend_cap: Option<String>,
    },
    /// Change a service account: its name, role or SSH keys.
    Update {
        /// Service account, by name or id.
        account: String,
        /// Name, unique in the project.
        #[arg(long)]
        name: Option<String>,
        /// What it may do in the project.
        #[arg(long, value_enum)]
        role: Option<AccountRole>,
        /// File with a public key that logs in to its machines; replaces all. May be given several times.
        #[arg(long, value_name = "FILE")]
        ssh_key: Vec<String>,
    },
    #[command(hide = true)]
    Rename { account: String, name: String },
    /// Enable a disabled service account.
    Enable {
        /// Service account, by name or id.
        account: String,
    },
    /// Disable a service account without deleting it; its keys stop working immediately.
    Disable {
        /// Service account, by name or id.
        account: String,
    },
    /// Delete a service account and its keys.
    Delete {
        /// Service account, by name or id.
        account: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Keys of a service account.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// What a service account may spend per month.
    #[command(subcommand)]
    SpendCap(spend_caps::Command),
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// List the keys, without their secrets.
    List {
        /// Service account, by name or id.
        account: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a key. It is shown only once.
    Create {
        /// Service account, by name or id.
        account: String,
        /// Days until the key expires; by default it does not expire.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3650))]
        expires_in_days: Option<u16>,
    },
    /// Revoke a key; it stops working immediately.
    Revoke {
        /// Service account, by name or id.
        account: String,
        /// Key, by id or the tail of its id.
        key: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum AccountRole {
    Reader,
    Launcher,
}

impl From<AccountRole> for types::ServiceAccountRole {
    fn from(role: AccountRole) -> Self {
        match role {
            AccountRole::Reader => Self::Reader,
            AccountRole::Launcher => Self::Launcher,
        }
    }
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("ROLE", "role"),
    ("CREATED", "created_at"),
    ("ID", "id"),
    ("PROJECT", "project_id"),
];
const KEYS: Columns = &[
    ("ID", "id"),
    ("STATE", "state"),
    ("LAST USED", "last_used_at"),
    ("EXPIRES", "expires_at"),
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
        Command::Show { account } => {
            let id = find_account(&client, &project, &account).await?;
            app.out.item(&send!(client.service_account_get(&project, &id)), COLUMNS)
        }
        Command::Create { name, role, ssh_key, spend_cap } => {
            let cap = match &spend_cap {
                Some(text) => Some(spend_caps::amount(app, &client, text).await?),
                None => None,
            };
            let body = types::ServiceAccountCreate {
                name,
                role: Some(role.into()),
                ssh_public_keys: public_keys(&ssh_key)?,
            };
            let made = send!(client.service_account_create(&project, &body));
            app.out.item(&made, COLUMNS)?;
            if let Some(amount_minor) = cap {
                spend_caps::set(&client, &project, &made.id, amount_minor).await.map_err(|failure| {
                    failure.suggest(format!(
                        "The service account was created without a cap. An owner or admin of the organization sets it: \
                         gpuaas service-accounts spend-cap set {} --amount AMOUNT",
                        made.name
                    ))
                })?;
            }
            Ok(())
        }
        Command::Update { account, name, role, ssh_key } => {
            if name.is_none() && role.is_none() && ssh_key.is_empty() {
                return Err(Failure::client("nothing to change").suggest("Give --name, --role or --ssh-key."));
            }
            let (role, keys) = (role.map(Into::into), public_keys(&ssh_key)?);
            let body = types::ServiceAccountUpdate { name, role, ssh_public_keys: keys, disabled: None };
            update(app, &client, project, account, body).await
        }
        Command::Rename { account, name } => {
            let body = types::ServiceAccountUpdate { name: Some(name), ..unchanged() };
            update(app, &client, project, account, body).await
        }
        Command::Enable { account } => {
            let body = types::ServiceAccountUpdate { disabled: Some(false), ..unchanged() };
            update(app, &client, project, account, body).await
        }
        Command::Disable { account } => {
            let body = types::ServiceAccountUpdate { disabled: Some(true), ..unchanged() };
            update(app, &client, project, account, body).await
        }
        Command::Delete { account, confirm } => {
            let id = find_account(&client, &project, &account).await?;
            app.confirm(&confirm, &format!("Delete {account} and its keys"))?;
            send!(client.service_account_delete(&project, &id));
            note(&format!("Deleted {account}."));
            Ok(())
        }
        Command::Keys(command) => keys(app, &client, project, command).await,
        Command::SpendCap(command) => spend_caps::run(app, &client, &project, command).await,
    }
}

fn unchanged() -> types::ServiceAccountUpdate {
    types::ServiceAccountUpdate { name: None, role: None, ssh_public_keys: Vec::new(), disabled: None }
}

/// The texts of public key files. A private key never leaves the machine.
fn public_keys(files: &[String]) -> Result<Vec<String>> {
    files.iter().map(|file| Ok(ssh_keys::public(&read_input(file)?)?.to_owned())).collect()
}

pub(super) async fn find_account(client: &Client, project: &str, text: &str) -> Result<String> {
    find(client, &kinds::SERVICE_ACCOUNT, &[("project", project)], text).await
}

async fn update(
    app: &App,
    client: &Client,
    project: String,
    account: String,
    body: types::ServiceAccountUpdate,
) -> Result {
    let id = find_account(client, &project, &account).await?;
    app.out.item(&send!(client.service_account_update(&project, &id, &body)), COLUMNS)
}

async fn keys(app: &App, client: &Client, project: String, command: KeysCommand) -> Result {
    match command {
        KeysCommand::List { account, limit } => {
            let account = find_account(client, &project, &account).await?;
            let list: Vec<types::ServiceAccountKey> = pages!(limit.get(), |page| client
                .service_account_key_list(&project, &account, page.cursor(), page.size()))?;
            app.out.list(&list, KEYS)
        }
        KeysCommand::Create { account, expires_in_days } => {
            let account = find_account(client, &project, &account).await?;
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
            let account = find_account(client, &project, &account).await?;
            let within = [("project", project.as_str()), ("account", account.as_str())];
            let id = find(client, &kinds::SERVICE_ACCOUNT_KEY, &within, &key).await?;
            send!(client.service_account_key_revoke(&project, &account, &id));
            note(&format!("Revoked {key}."));
            Ok(())
        }
    }
}
