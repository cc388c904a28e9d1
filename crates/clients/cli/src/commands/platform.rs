//! `gpuaas platform`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, orgs::COLUMNS as ORGS, platform_allocations, platform_billing, platform_changes};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// Organizations of the platform.
    #[command(subcommand)]
    Orgs(OrgsCommand),
    /// Users of the platform, and their platform roles.
    #[command(subcommand)]
    Users(UsersCommand),
    /// Accounts of the built-in issuer.
    #[command(subcommand)]
    Accounts(AccountsCommand),
    /// Allocations of all organizations.
    #[command(subcommand)]
    Allocations(platform_allocations::Command),
    /// Billing of all organizations.
    #[command(subcommand)]
    Billing(platform_billing::Command),
    /// Changes that need the approval of a second administrator.
    #[command(subcommand)]
    Changes(platform_changes::Command),
    /// Deliveries of mail and webhooks.
    #[command(subcommand)]
    Deliveries(platform_billing::DeliveriesCommand),
}

#[derive(Subcommand)]
pub enum OrgsCommand {
    /// List all organizations.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create an enterprise organization.
    Create {
        /// Slug, unique: lower-case letters, digits and hyphens.
        slug: String,
        /// Display name; defaults to the slug.
        #[arg(long)]
        name: Option<String>,
        /// Owner, by e-mail address or id; defaults to you.
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
    },
    /// Suspend an organization: it becomes read-only.
    Suspend {
        /// Organization, by slug or id.
        org: String,
        /// Reason, visible to the organization's members.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Resume a suspended organization: its members can work again.
    Resume {
        /// Organization, by slug or id.
        org: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum PlatformRole {
    #[value(name = "platform_admin")]
    Admin,
    #[value(name = "platform_ops")]
    Ops,
    #[value(name = "platform_auditor")]
    Auditor,
}

impl PlatformRole {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "platform_admin",
            Self::Ops => "platform_ops",
            Self::Auditor => "platform_auditor",
        }
    }
}

#[derive(Subcommand)]
pub enum UsersCommand {
    /// List all users.
    List {
        /// Only users with this e-mail address.
        #[arg(long)]
        email: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Set the platform roles of a user; without roles, all are revoked.
    SetRoles {
        /// User, by e-mail address or id.
        user: String,
        /// All platform roles that the user is to have.
        #[arg(value_enum)]
        roles: Vec<PlatformRole>,
    },
}

#[derive(Subcommand)]
pub enum AccountsCommand {
    /// List the accounts of the built-in issuer.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create an account and print its one-time password, which is shown only once.
    Create {
        /// E-mail address, with which the person signs in.
        email: String,
        /// Name of the person.
        #[arg(long)]
        name: Option<String>,
    },
    /// Set a new one-time password, unlock the account and revoke its sessions.
    ResetPassword {
        /// Account, by e-mail address or id.
        account: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Disable an account and revoke its sessions.
    Disable {
        /// Account, by e-mail address or id.
        account: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Enable a disabled account.
    Enable {
        /// Account, by e-mail address or id.
        account: String,
    },
}

const USERS: Columns = &[
    ("NAME", "name"),
    ("EMAIL", "email"),
    ("PLATFORM ROLES", "platform_roles"),
    ("CREATED", "created_at"),
    ("ID", "id"),
];
const ACCOUNTS: Columns =
    &[("EMAIL", "email"), ("NAME", "name"), ("STATE", "state"), ("CREATED", "created_at"), ("ID", "id")];
const NEW_ACCOUNT: Columns =
    &[("EMAIL", "account.email"), ("PASSWORD", "one_time_password"), ("ID", "account.id")];
const PASSWORD: Columns = &[("PASSWORD", "one_time_password")];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::Orgs(command) => orgs(app, &client, command).await,
        Command::Users(command) => users(app, &client, command).await,
        Command::Accounts(command) => accounts(app, &client, command).await,
        Command::Allocations(command) => platform_allocations::run(app, &client, command).await,
        Command::Billing(command) => platform_billing::run(app, &client, command).await,
        Command::Changes(command) => platform_changes::run(app, &client, command).await,
        Command::Deliveries(command) => platform_billing::deliveries(app, &client, command).await,
    }
}

async fn orgs(app: &App, client: &Client, command: OrgsCommand) -> Result {
    match command {
        OrgsCommand::List { limit } => {
            let orgs: Vec<types::Org> =
                pages!(limit.get(), |page| client.platform_org_list(page.cursor(), page.size()))?;
            app.out.list(&orgs, ORGS)
        }
        OrgsCommand::Create { slug, name, owner } => {
            let owner = resolve::optional(client, &kinds::PLATFORM_USER, &[], owner.as_deref()).await?;
            let body = types::OrgCreate {
                name: name.as_deref().unwrap_or(&slug).to_owned(),
                slug: slug.clone(),
                owner_user_id: owner,
            };
            app.out.item(&send!(client.platform_org_create(&body)), ORGS)
        }
        OrgsCommand::Suspend { org, reason, confirm } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_ORG, &org).await?;
            let body = types::OrgSuspend { reason };
            app.confirm(&confirm, &format!("Suspend {org} for all its members"))?;
            app.out.item(&send!(client.platform_org_suspend(&id, &body)), ORGS)
        }
        OrgsCommand::Resume { org } => {
            let id = resolve::on_platform(client, &kinds::PLATFORM_ORG, &org).await?;
            app.out.item(&send!(client.platform_org_resume(&id)), ORGS)
        }
    }
}

async fn users(app: &App, client: &Client, command: UsersCommand) -> Result {
    match command {
        UsersCommand::List { email, limit } => {
            let users: Vec<types::PlatformUser> = pages!(limit.get(), |page| client.platform_user_list(
                page.cursor(),
                email.as_deref(),
                page.size()
            ))?;
            app.out.list(&users, USERS)
        }
        UsersCommand::SetRoles { user, roles } => {
            let roles = roles.into_iter().map(|role| field("role", role.name())).collect::<Result<_>>()?;
            let id = resolve::on_platform(client, &kinds::PLATFORM_USER, &user).await?;
            let body = types::PlatformRolesPut { roles };
            app.out.item(&send!(client.platform_user_roles_set(&id, &body)), USERS)
        }
    }
}

async fn accounts(app: &App, client: &Client, command: AccountsCommand) -> Result {
    const ONCE: &str = "Pass the password on: it is shown only once.";
    match command {
        AccountsCommand::List { limit } => {
            let accounts: Vec<types::Account> =
                pages!(limit.get(), |page| client.platform_account_list(page.cursor(), page.size()))?;
            app.out.list(&accounts, ACCOUNTS)
        }
        AccountsCommand::Create { email, name } => {
            let body = types::AccountCreate { email, name };
            let made = send!(client.platform_account_create(&body));
            note(ONCE);
            app.out.item(&made, NEW_ACCOUNT)
        }
        AccountsCommand::ResetPassword { account, confirm } => {
            let id = resolve::on_platform(client, &kinds::ACCOUNT, &account).await?;
            app.confirm(&confirm, &format!("Reset the password of {account} and revoke its sessions"))?;
            let reset = send!(client.platform_account_reset_password(&id));
            note(ONCE);
            app.out.item(&reset, PASSWORD)
        }
        AccountsCommand::Disable { account, confirm } => {
            let id = resolve::on_platform(client, &kinds::ACCOUNT, &account).await?;
            app.confirm(&confirm, &format!("Disable {account} and revoke its sessions"))?;
            app.out.item(&send!(client.platform_account_disable(&id)), ACCOUNTS)
        }
        AccountsCommand::Enable { account } => {
            let id = resolve::on_platform(client, &kinds::ACCOUNT, &account).await?;
            app.out.item(&send!(client.platform_account_enable(&id)), ACCOUNTS)
        }
    }
}
