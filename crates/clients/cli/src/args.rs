//! The command line: what every command takes, and the groups of commands.

use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::commands::{
    agents, allocations, api, audit, auth, billing, catalog, completion, context, doctor, findings, groups,
    health, invitations, members, nodes, notifications, open, ops, orgs, platform, policy, pools, projects,
    recordings, regions, service_accounts, skus, slots, ssh, ssh_config, ssh_keys, ssh_proxy, status, tasks,
    terminal, trust, webhooks,
};

/// Work with a GPUaaS control plane.
#[derive(Parser)]
#[command(
    name = "gpuaas",
    version,
    propagate_version = true,
    after_help = "Environment:\n  \
                  GPUAAS_SERVER, GPUAAS_ORG, GPUAAS_PROJECT  stand for the options of these names\n  \
                  GPUAAS_TOKEN                               an access token, instead of a sign-in\n  \
                  GPUAAS_SERVICE_ACCOUNT_KEY                 a key for CI, instead of a sign-in\n  \
                  NO_COLOR                                   turns colour off\n\n\
                  Exit codes: 0 ok, 1 usage or client, 2 server or network,\n\
                  3 authentication or permission, 4 not found, 5 conflict,\n\
                  6 capacity, quota or funds, 130 interrupted."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(ClapArgs)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Print tables and CSV without headers.
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Print tables with all columns, whole ids and exact times, however wide they are.
    #[arg(long, global = true)]
    pub wide: bool,
    /// Never prompt; fail instead.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Server address; defaults to that of the context.
    #[arg(long, global = true, env = "GPUAAS_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// Organization, by id or slug; defaults to that of the context.
    #[arg(long, global = true, env = "GPUAAS_ORG", value_name = "ORG")]
    pub org: Option<String>,
    /// Project, by id or slug; defaults to that of the context.
    #[arg(short, long, global = true, env = "GPUAAS_PROJECT", value_name = "PROJECT")]
    pub project: Option<String>,
}

impl Global {
    /// Of no command line: what the environment and the context say.
    pub fn of_context() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            output: Format::Table,
            no_headers: false,
            wide: false,
            no_input: true,
            server: variable("GPUAAS_SERVER"),
            org: variable("GPUAAS_ORG"),
            project: variable("GPUAAS_PROJECT"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
    Csv,
}

/// For results that change.
#[derive(ClapArgs)]
pub struct Watch {
    /// Show the result again every two seconds, until you interrupt.
    #[arg(id = REPEAT, long = "watch", short = 'w')]
    repeat: bool,
}

/// The id of `--watch`: the main loop looks for it.
pub const REPEAT: &str = "repeat";

/// How many items of a list to fetch.
#[derive(ClapArgs)]
pub struct Limit {
    #[command(flatten)]
    watch: Watch,
    /// Maximum number of items; all by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl Limit {
    pub fn get(&self) -> Option<usize> {
        self.limit.and_then(|n| usize::try_from(n).ok())
    }
}

/// For operations that cannot be undone.
#[derive(ClapArgs)]
pub struct Confirm {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub yes: bool,
}

/// For operations that complete asynchronously.
#[derive(ClapArgs)]
pub struct Wait {
    /// Wait until the operation has completed; exit with an error if it failed.
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait. The operation continues after a timeout.
    #[arg(long, value_name = "SECONDS", requires = "wait", default_value_t = 900,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Wait {
    /// The timeout, when waiting was requested.
    pub fn limit(&self) -> Option<Duration> {
        self.wait.then(|| Duration::from_secs(self.timeout))
    }
}

/// For operations that must not be executed twice.
#[derive(ClapArgs)]
pub struct Once {
    /// Idempotency key. Repeat a command whose result you did not see with the same key: it is executed once.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl Once {
    /// The given key, or a new one.
    pub fn key(&self) -> String {
        self.idempotency_key.clone().unwrap_or_else(sdk::idempotency_key)
    }
}

/// A role in an organization or a project.
#[derive(Clone, Copy, ValueEnum)]
pub enum Role {
    Owner,
    Admin,
    Member,
    Viewer,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Member => "member",
            Self::Viewer => "viewer",
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    /// Show what runs, what it costs and what needs attention.
    Status(status::Command),
    /// Open the server or a checkout page in a browser.
    Open(open::Command),
    /// Sign in, sign out, show the current user.
    #[command(subcommand)]
    Auth(auth::Command),
    /// The default server, organization and project of commands.
    #[command(subcommand)]
    Context(context::Command),
    /// Organizations that you belong to.
    #[command(subcommand)]
    Orgs(orgs::Command),
    /// Projects and their members.
    #[command(subcommand)]
    Projects(projects::Command),
    /// Members of an organization.
    #[command(subcommand)]
    Members(members::Command),
    /// Invitations to an organization.
    #[command(subcommand)]
    Invitations(invitations::Command),
    /// Your SSH public keys.
    #[command(subcommand)]
    SshKeys(ssh_keys::Command),
    /// Products that can be launched, with regions and prices.
    Catalog(catalog::Command),
    /// Launch a machine.
    #[command(alias = "run")]
    Launch(allocations::launch::Create),
    /// List your machines.
    #[command(visible_alias = "ps")]
    Ls(allocations::List),
    /// Release a machine: its data is deleted, and billing stops.
    Rm(allocations::Release),
    /// Launch, use and release machines.
    #[command(subcommand, alias = "alloc")]
    Allocations(allocations::Command),
    /// Launch several machines together, all or none.
    #[command(subcommand)]
    Groups(groups::Command),
    /// Log in to an allocation.
    Ssh(ssh::Command),
    /// Make ssh, scp, rsync and editors reach your machines by name.
    SshConfig(ssh_config::Command),
    /// Carry one SSH connection: what ssh runs.
    #[command(hide = true)]
    SshProxy(ssh_proxy::Command),
    /// Open a shell on an allocation through the server.
    Terminal(terminal::Command),
    /// Replay, download and verify recordings of terminal sessions.
    #[command(subcommand)]
    Recordings(recordings::Command),
    /// Service accounts of a project, and their keys.
    #[command(subcommand)]
    ServiceAccounts(service_accounts::Command),
    /// Limits and settings, and where each value comes from.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Balance, usage and cost, top-ups, budgets, statements.
    #[command(subcommand)]
    Billing(billing::Command),
    /// List, export and verify the ledger.
    #[command(subcommand)]
    Ledger(billing::ledger::Command),
    /// Your notifications and notification preferences.
    #[command(subcommand)]
    Notifications(notifications::Command),
    /// Webhooks that receive an organization's events.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    /// The audit trail.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Organizations, users, accounts, allocations and money.
    #[command(subcommand)]
    Platform(platform::Command),
    /// State of the platform, queues, workflows, discrepancies.
    #[command(subcommand)]
    Ops(ops::Command),
    /// Nodes of the fleet: create, discover, approve, drain, retire.
    #[command(subcommand)]
    Nodes(nodes::Command),
    /// Slots: parts of nodes that are sold separately.
    #[command(subcommand)]
    Slots(slots::Command),
    /// Products, their sizes and prices.
    #[command(subcommand)]
    Skus(skus::Command),
    /// Tasks that were queued for nodes.
    #[command(subcommand)]
    Tasks(tasks::Command),
    /// Health findings that nodes reported.
    #[command(subcommand)]
    Findings(findings::Command),
    /// Rules that decide the action for a health finding.
    #[command(subcommand)]
    Health(health::Command),
    /// Regions of the fleet.
    #[command(subcommand)]
    Regions(regions::Command),
    /// Pools of nodes within a region.
    #[command(subcommand)]
    Pools(pools::Command),
    /// Agent versions that can be installed on nodes.
    #[command(subcommand)]
    Agents(agents::Command),
    /// Trust of nodes: certificate authorities and task signers.
    #[command(subcommand)]
    Trust(trust::Command),
    /// Send an arbitrary API request with your credentials.
    Api(api::Command),
    /// Check the connection, the clock and the credentials.
    Doctor(doctor::Command),
    /// Print a shell completion script.
    Completion(completion::Command),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
