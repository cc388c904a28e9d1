//! The commands, one file per group.

/// Follows the pages of a list up to a limit: `pages!(limit, |page| client.org_list(page.cursor(), page.size()))`.
macro_rules! pages {
    ($limit:expr, |$page:ident| $request:expr) => {
        sdk::Pages::new(async |$page: sdk::PageRequest| {
            let answer = Box::pin($request).await?.into_inner();
            Ok((answer.items, answer.next_cursor))
        })
        .collect($limit)
        .await
    };
}
pub(crate) use pages;

/// Sends a request and gives the answer's content. The future is boxed here, once for all commands: each of the
/// generated ones is several kilobytes large.
macro_rules! send {
    ($request:expr) => {
        Box::pin($request).await.map_err(sdk::Error::from)?.into_inner()
    };
}
pub(crate) use send;

pub mod agents;
pub mod allocations;
pub mod api;
pub mod audit;
pub mod auth;
pub mod billing;
pub mod catalog;
pub mod completion;
pub mod context;
pub mod discrepancies;
pub mod doctor;
pub mod findings;
pub mod groups;
pub mod health;
pub mod invitations;
pub mod members;
pub mod nodes;
pub mod notifications;
pub mod on_platform;
pub mod open;
pub mod ops;
pub mod ops_status;
pub mod orgs;
pub mod platform;
pub mod platform_allocations;
pub mod platform_billing;
pub mod platform_changes;
pub mod platform_payments;
pub mod platform_refunds;
pub mod policy;
pub mod pools;
pub mod projects;
pub mod recordings;
pub mod regions;
pub mod restore;
pub mod sagas;
pub mod service_accounts;
pub mod sessions;
pub mod skus;
pub mod slots;
pub mod spend_caps;
pub mod ssh;
pub mod ssh_config;
pub mod ssh_keys;
pub mod ssh_proxy;
pub mod status;
pub mod tasks;
pub mod terminal;
pub mod trust;
pub mod webhooks;

use std::{fmt::Display, process::ExitCode, str::FromStr};

use crate::{
    app::App,
    args::Command,
    failure::{Failure, Result},
};

/// Runs a command: the exit code of one that did not fail.
pub async fn run(app: &App, command: Command) -> Result<ExitCode> {
    let done = match command {
        // The exit code is that of the shell.
        Command::Terminal(command) => return terminal::run(app, command).await,
        Command::Auth(command) => auth::run(app, command).await,
        Command::Context(command) => context::run(app, command).await,
        Command::Orgs(command) => orgs::run(app, command).await,
        Command::Projects(command) => projects::run(app, command).await,
        Command::Members(command) => members::run(app, command).await,
        Command::Invitations(command) => invitations::run(app, command).await,
        Command::SshKeys(command) => ssh_keys::run(app, command).await,
        Command::Catalog(command) => catalog::run(app, command).await,
        Command::Launch(create) => allocations::run(app, allocations::Command::Create(create)).await,
        Command::Ls(list) => allocations::run(app, allocations::Command::List(list)).await,
        Command::Rm(release) => allocations::run(app, allocations::Command::Release(release)).await,
        Command::Status(command) => status::run(app, command).await,
        Command::Open(command) => open::run(app, command).await,
        Command::Allocations(command) => allocations::run(app, command).await,
        Command::Groups(command) => groups::run(app, command).await,
        Command::Ssh(command) => ssh::run(app, command).await,
        Command::SshConfig(command) => ssh_config::run(app, command).await,
        Command::SshProxy(command) => ssh_proxy::run(app, command).await,
        Command::Recordings(command) => recordings::run(app, command).await,
        Command::ServiceAccounts(command) => service_accounts::run(app, command).await,
        Command::Policy(command) => policy::run(app, command).await,
        Command::Billing(command) => billing::run(app, command).await,
        Command::Ledger(command) => billing::ledger::run(app, command).await,
        Command::Notifications(command) => notifications::run(app, command).await,
        Command::Webhooks(command) => webhooks::run(app, command).await,
        Command::Audit(command) => audit::run(app, command).await,
        Command::Platform(command) => platform::run(app, command).await,
        Command::Ops(command) => ops::run(app, command).await,
        Command::Nodes(command) => nodes::run(app, command).await,
        Command::Slots(command) => slots::run(app, command).await,
        Command::Skus(command) => skus::run(app, command).await,
        Command::Tasks(command) => tasks::run(app, command).await,
        Command::Findings(command) => findings::run(app, command).await,
        Command::Health(command) => health::run(app, command).await,
        Command::Regions(command) => regions::run(app, command).await,
        Command::Pools(command) => pools::run(app, command).await,
        Command::Agents(command) => agents::run(app, command).await,
        Command::Trust(command) => trust::run(app, command).await,
        Command::Api(command) => api::run(app, command).await,
        Command::Doctor(command) => doctor::run(app, command).await,
        Command::Completion(command) => completion::run(&command),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// A value that is not free text, such as one of an enumeration; validated before anything is sent. The server
/// validates texts.
pub fn field<T: FromStr<Err: Display>>(name: &str, text: impl AsRef<str>) -> Result<T> {
    text.as_ref().parse().map_err(|error| Failure::client(format!("{name}: {error}")))
}

pub fn optional<T: FromStr<Err: Display>>(name: &str, text: Option<impl AsRef<str>>) -> Result<Option<T>> {
    text.map(|text| field(name, text)).transpose()
}

/// The text of a file, or of standard input for `-`.
pub fn read_input(place: &str) -> Result<String> {
    let read =
        if place == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(place) };
    read.map_err(|error| Failure::client(format!("{place} cannot be read: {error}")))
}
