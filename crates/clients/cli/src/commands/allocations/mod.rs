//! `gpuaas allocations`.

mod access;
pub mod follow;
pub mod launch;
mod page;
pub mod refusal;
mod stream;
mod terminals;
mod watch;

pub use stream::Frames;

use clap::{Args as ClapArgs, Subcommand};
use sdk::{Client, types};

use self::follow::{Following, Goal};
use crate::{
    app::App,
    args::{Confirm, Format, Limit, Wait},
    commands::optional,
    failure::{Result, local},
    output::{Columns, note},
    resolve,
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the live allocations of the project.
    List(List),
    /// Launch a machine.
    #[command(visible_alias = "launch")]
    Create(launch::Create),
    /// Dry run: show whether a launch would succeed, its cost, and why it would be refused.
    Explain(launch::Explain),
    /// Show an allocation and how to log in.
    #[command(alias = "get")]
    Show {
        /// Allocation, by name or id.
        allocation: String,
        /// Then follow its events until it has ended or you interrupt.
        #[arg(short, long)]
        watch: bool,
    },
    /// Follow changes of all allocations of the project until you interrupt.
    Watch,
    /// List the events of an allocation.
    Events {
        /// Allocation, by name or id.
        allocation: String,
        /// Then follow new events until it has ended or you interrupt.
        #[arg(short, long)]
        follow: bool,
    },
    /// Release an allocation: its data is deleted, and billing stops.
    Release(Release),
    /// Retry a failed release.
    Retry {
        /// Allocation, by name or id.
        allocation: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Restart the machine of an allocation; running processes are terminated.
    Restart {
        /// Allocation, by name or id.
        allocation: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Users who may log in besides the creator.
    #[command(subcommand)]
    Grants(access::GrantsCommand),
    /// SSH keys on the machine.
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// Terminal sessions on the machine.
    #[command(subcommand)]
    Terminals(terminals::Command),
}

#[derive(ClapArgs)]
pub struct List {
    /// Include ended ones.
    #[arg(long)]
    all: bool,
    /// Only allocations in this state.
    #[arg(long, value_parser = [
        "requested", "provisioning", "active", "releasing", "released", "release_failed", "failed",
    ])]
    state: Option<String>,
    /// Only members of this group, by name or id.
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(ClapArgs)]
pub struct Release {
    /// Allocation, by name or id.
    allocation: String,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    confirm: Confirm,
}

pub const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("OWNER", "creator_id"),
    ("PER HOUR", "per_hour"),
    ("SKU", "sku"),
    ("GPUS", "gpus"),
    ("CREATED", "created_at"),
    ("ID", "id"),
    ("REGION", "region"),
];

/// An allocation of the project, and the program's state.
pub struct Place<'a> {
    pub app: &'a App,
    pub client: &'a Client,
    pub project: String,
}

impl Place<'_> {
    pub async fn allocation(&self, text: &str) -> Result<String> {
        resolve::allocation(self.client, &self.project, text).await
    }

    pub async fn get(&self, id: &str) -> Result<types::Allocation> {
        let (state, wait) = (None, None);
        Ok(send!(self.client.allocation_get(&self.project, id, state, wait)))
    }
}

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    let place = &Place { app, client, project: resolve::project(app, client).await? };
    match command {
        Command::List(args) => list(place, &args).await,
        Command::Create(create) => launch::create(place, create).await,
        Command::Explain(explain) => launch::explain(place, explain).await,
        Command::Show { allocation, watch } => {
            let id = place.allocation(&allocation).await?;
            show_one(place, &place.get(&id).await?).await?;
            if watch { watch::follow(place, &id, watch::last(place, &id).await?).await } else { Ok(()) }
        }
        Command::Watch => watch::project(place).await,
        Command::Events { allocation, follow } => {
            let id = place.allocation(&allocation).await?;
            watch::events(place, &id, follow).await
        }
        Command::Release(args) => release(place, &args).await,
        Command::Retry { allocation, wait } => retry(place, &allocation, &wait).await,
        Command::Restart { allocation, wait, confirm } => restart(place, &allocation, &wait, &confirm).await,
        Command::Grants(command) => access::grants(place, command).await,
        Command::Access(command) => access::keys(place, command).await,
        Command::Terminals(command) => terminals::run(place, command).await,
    }
}

async fn list(place: &Place<'_>, args: &List) -> Result {
    let List { all, state, group, limit } = args;
    let (state, group) = (state.as_deref(), group.as_deref());
    let group = match group {
        Some(text) => Some(resolve::group(place.client, &place.project, text).await?),
        None => None,
    };
    let live = (!*all && state.is_none()).then_some(types::AllocationListLive::True);
    let state = optional("state", state)?;
    let found: Vec<types::Allocation> = pages!(limit.get(), |page| place.client.allocation_list(
        &place.project,
        page.cursor(),
        group.as_deref(),
        live,
        page.size(),
        state
    ))?;
    show(place, &found).await
}

/// Prints allocations with what they cost in an hour and whose they are.
pub async fn show(place: &Place<'_>, found: &[types::Allocation]) -> Result {
    names::learn(place.app, place.client, &Scope::Project(&place.project), found).await;
    let priced = |one: &types::Allocation| {
        let mut row = serde_json::to_value(one).map_err(local("the result cannot be printed"))?;
        row["per_hour_minor"] = per_hour(one).into();
        Ok(row)
    };
    match place.app.out.format {
        Format::Json | Format::Yaml => place.app.out.list(found, COLUMNS),
        Format::Table | Format::Csv => {
            place.app.out.priced(&found.iter().map(priced).collect::<Result<Vec<_>>>()?, COLUMNS)
        }
    }
}

/// Prints the page of one.
async fn show_one(place: &Place<'_>, one: &types::Allocation) -> Result {
    names::learn(place.app, place.client, &Scope::Project(&place.project), std::slice::from_ref(one)).await;
    page::show(place.app, one)
}

/// What an allocation costs in an hour, in minor units.
pub fn per_hour(one: &types::Allocation) -> i64 {
    match one.price_unit {
        types::PriceUnit::GpuHour => one.unit_price_minor.saturating_mul(i64::from(one.gpus)),
        types::PriceUnit::NodeHour => one.unit_price_minor,
    }
}

/// Prints the allocation, with --wait after the operation has ended.
pub async fn begun(place: &Place<'_>, now: types::Allocation, goal: Goal, after: i64, wait: &Wait) -> Result {
    let id = now.id.to_string();
    let Some(limit) = wait.limit() else {
        note(&format!("Follow it with `gpuaas allocations show {} --watch`.", refusal::quoted(&now.name)));
        return show_one(place, &now).await;
    };
    let following = Following { client: place.client, project: &place.project, allocation: &id };
    let ended = following.to_the_end(goal, after, limit).await;
    // Print the allocation after a failure too, but as a result only after success.
    ended?;
    show_one(place, &place.get(&id).await?).await
}

async fn release(place: &Place<'_>, args: &Release) -> Result {
    let Release { allocation: text, wait, confirm } = args;
    let id = place.allocation(text).await?;
    place.app.confirm(confirm, &format!("Release {text} and delete its data"))?;
    let after = watch::last(place, &id).await?;
    let project = place.project.as_str();
    let now = send!(place.client.allocation_release(project, &id));
    // The operation may already run, or even have ended: then print all its events.
    let after = if now.state == types::AllocationState::Releasing { after } else { 0 };
    begun(place, now, Goal::Release, after, wait).await
}

async fn retry(place: &Place<'_>, text: &str, wait: &Wait) -> Result {
    let id = place.allocation(text).await?;
    let after = watch::last(place, &id).await?;
    let project = place.project.as_str();
    let now = send!(place.client.allocation_retry(project, &id));
    begun(place, now, Goal::Release, after, wait).await
}

async fn restart(place: &Place<'_>, text: &str, wait: &Wait, confirm: &Confirm) -> Result {
    let id = place.allocation(text).await?;
    place.app.confirm(confirm, &format!("Restart {text} and terminate its processes"))?;
    let after = watch::last(place, &id).await?;
    let project = place.project.as_str();
    let now = send!(place.client.allocation_restart(project, &id));
    begun(place, now, Goal::Restart, after, wait).await
}
