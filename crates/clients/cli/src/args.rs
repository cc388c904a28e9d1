//! The command line: what every command takes, and the groups of commands.

use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::commands::{
    agents, allocations, api, audit, auth, billing, catalog, completion, context, doctor, findings, groups,
    health, invitations, members, nodes, notifications, ops, orgs, platform, policy, pools, projects,
    regions, service_accounts, skus, slots, ssh, ssh_keys, tasks, trust, webhooks,
};

/// Work with a GPUaaS control plane.
#[derive(Parser)]
#[command(
    name = "gpuaas",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 ok, 1 usage or client, 2 server or network, 3 authentication or permission, \
                  4 not found, 5 conflict, 6 capacity, quota or funds, 130 interrupted."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// How to print results.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Leave out the headers of tables and CSV.
    #[arg(long, global = true)]
    pub no_headers: bool,
    /// Never ask anything; fail instead.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// The server's address; otherwise that of the context.
    #[arg(long, global = true, env = "GPUAAS_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// The organization, by id or slug; otherwise that of the context.
    #[arg(long, global = true, env = "GPUAAS_ORG", value_name = "ORG")]
    pub org: Option<String>,
    /// The project, by id or slug; otherwise that of the context.
    #[arg(short, long, global = true, env = "GPUAAS_PROJECT", value_name = "PROJECT")]
    pub project: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
    Csv,
}

/// How much of a list to fetch.
#[derive(ClapArgs)]
pub struct Limit {
    /// At most this many; all when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl Limit {
    pub fn get(&self) -> Option<usize> {
        self.limit.and_then(|n| usize::try_from(n).ok())
    }
}

/// For what cannot be taken back.
#[derive(ClapArgs)]
pub struct Confirm {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub yes: bool,
}

/// For what a node does in its own time.
#[derive(ClapArgs)]
pub struct Wait {
    /// Follow the work until it has ended; fail when it failed.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most. The work itself goes on.
    #[arg(long, value_name = "SECONDS", requires = "wait", default_value_t = 900,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Wait {
    /// How long, if at all.
    pub fn limit(&self) -> Option<Duration> {
        self.wait.then(|| Duration::from_secs(self.timeout))
    }
}

/// For what must not be done twice.
#[derive(ClapArgs)]
pub struct Once {
    /// Of a command whose end you did not see: repeated with the same key, it has one effect.
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
    /// Sign in and out, see who you are.
    #[command(subcommand)]
    Auth(auth::Command),
    /// The server, organization and project that commands work with.
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
    /// What can be launched, where, and for how much.
    Catalog(catalog::Command),
    /// Machines that you launch, use and release.
    #[command(subcommand, visible_alias = "alloc")]
    Allocations(allocations::Command),
    /// Several machines that are launched together, all or none.
    #[command(subcommand)]
    Groups(groups::Command),
    /// Log in to an allocation.
    Ssh(ssh::Command),
    /// Machines that act in a project, and their keys.
    #[command(subcommand)]
    ServiceAccounts(service_accounts::Command),
    /// Limits and settings, and why they are what they are.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Balance, use and what it cost, top-ups, budgets, statements.
    #[command(subcommand)]
    Billing(billing::Command),
    /// The ledger: read it, export it, check it.
    #[command(subcommand)]
    Ledger(billing::ledger::Command),
    /// What you were told, and what you want to be told.
    #[command(subcommand)]
    Notifications(notifications::Command),
    /// Where an organization's events are posted.
    #[command(subcommand)]
    Webhooks(webhooks::Command),
    /// The audit trail.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Work of platform administrators: organizations, people, local accounts, allocations.
    #[command(subcommand)]
    Platform(platform::Command),
    /// Work of operators: outbox, dead letters, workflow runs, records that disagree.
    #[command(subcommand)]
    Ops(ops::Command),
    /// Nodes of the fleet: join, look over, approve, serve, drain, leave.
    #[command(subcommand)]
    Nodes(nodes::Command),
    /// Parts of nodes that can be sold by themselves.
    #[command(subcommand)]
    Slots(slots::Command),
    /// Products, their sizes and prices.
    #[command(subcommand)]
    Skus(skus::Command),
    /// Work that nodes were given.
    #[command(subcommand)]
    Tasks(tasks::Command),
    /// What nodes reported about their health.
    #[command(subcommand)]
    Findings(findings::Command),
    /// What is done about findings.
    #[command(subcommand)]
    Health(health::Command),
    /// Regions of the fleet.
    #[command(subcommand)]
    Regions(regions::Command),
    /// Pools of nodes within a region.
    #[command(subcommand)]
    Pools(pools::Command),
    /// Agent programs that nodes can be given.
    #[command(subcommand)]
    Agents(agents::Command),
    /// Whom nodes believe: certificate authorities and signers of work.
    #[command(subcommand)]
    Trust(trust::Command),
    /// Any request of the API, with your credentials.
    Api(api::Command),
    /// Check that this machine can work with the server.
    Doctor(doctor::Command),
    /// Print the completion script of a shell.
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
