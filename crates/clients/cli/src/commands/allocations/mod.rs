//! `gpuaas allocations`.

mod access;
pub mod follow;
pub mod launch;
mod page;
pub mod refusal;
mod stream;
mod watch;

pub use stream::Frames;

use clap::Subcommand;
use sdk::{Client, types};

use self::follow::{Following, Goal};
use crate::{
    app::App,
    args::{Confirm, Limit, Wait},
    commands::optional,
    failure::Result,
    output::{Columns, note},
    resolve,
};

/// Allocations are given by id, or by a name that is unique in the project.
#[derive(Subcommand)]
pub enum Command {
    /// List the live allocations of the project.
    List {
        /// Include ended ones.
        #[arg(long)]
        all: bool,
        #[arg(long, value_parser = [
            "requested", "provisioning", "active", "releasing", "released", "release_failed", "failed",
        ])]
        state: Option<String>,
        /// Only members of a group, by id or name.
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Launch a machine.
    #[command(visible_alias = "launch")]
    Create(launch::Create),
    /// Dry run: show whether a launch would succeed, its cost, and why it would be refused.
    Explain(launch::Explain),
    /// Show an allocation and how to log in.
    #[command(visible_alias = "show")]
    Get {
        allocation: String,
        /// Then follow its events until it has ended or you interrupt.
        #[arg(short, long)]
        watch: bool,
    },
    /// Follow changes of all allocations of the project until you interrupt.
    Watch,
    /// List the events of an allocation.
    Events {
        allocation: String,
        /// Then follow new events until it has ended or you interrupt.
        #[arg(short, long)]
        follow: bool,
    },
    /// Release an allocation: its data is deleted, and billing stops.
    Release {
        allocation: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Retry a failed release.
    Retry {
        allocation: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Restart the machine of an allocation; running processes are terminated.
    Restart {
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
}

pub const COLUMNS: Columns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("SKU", "sku"),
    ("GPUS", "gpus"),
    ("REGION", "region"),
    ("CREATED", "created_at"),
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
        Command::List { all, state, group, limit } => {
            list(place, all, state.as_deref(), group.as_deref(), &limit).await
        }
        Command::Create(create) => launch::create(place, create).await,
        Command::Explain(explain) => launch::explain(place, explain).await,
        Command::Get { allocation, watch } => {
            let id = place.allocation(&allocation).await?;
            page::show(app, &place.get(&id).await?)?;
            if watch { watch::follow(place, &id, watch::last(place, &id).await?).await } else { Ok(()) }
        }
        Command::Watch => watch::project(place).await,
        Command::Events { allocation, follow } => {
            let id = place.allocation(&allocation).await?;
            watch::events(place, &id, follow).await
        }
        Command::Release { allocation, wait, confirm } => release(place, &allocation, &wait, &confirm).await,
        Command::Retry { allocation, wait } => retry(place, &allocation, &wait).await,
        Command::Restart { allocation, wait, confirm } => restart(place, &allocation, &wait, &confirm).await,
        Command::Grants(command) => access::grants(place, command).await,
        Command::Access(command) => access::keys(place, command).await,
    }
}

async fn list(
    place: &Place<'_>,
    all: bool,
    state: Option<&str>,
    group: Option<&str>,
    limit: &Limit,
) -> Result {
    let group = match group {
        Some(text) => Some(resolve::group(place.client, &place.project, text).await?),
        None => None,
    };
    let live = (!all && state.is_none()).then_some(types::AllocationListLive::True);
    let state = optional("state", state)?;
    let found: Vec<types::Allocation> = pages!(limit.get(), |page| place.client.allocation_list(
        &place.project,
        page.cursor(),
        group.as_deref(),
        live,
        page.size(),
        state
    ))?;
    place.app.out.list(&found, COLUMNS)
}

/// Prints the allocation, with --wait after the operation has ended.
pub async fn begun(place: &Place<'_>, now: types::Allocation, goal: Goal, after: i64, wait: &Wait) -> Result {
    let id = now.id.to_string();
    let Some(limit) = wait.limit() else {
        note(&format!("Follow it with `gpuaas allocations get {id} --watch`."));
        return page::show(place.app, &now);
    };
    let following = Following { client: place.client, project: &place.project, allocation: &id };
    let ended = following.to_the_end(goal, after, limit).await;
    // Print the allocation after a failure too, but as a result only after success.
    ended?;
    page::show(place.app, &place.get(&id).await?)
}

async fn release(place: &Place<'_>, text: &str, wait: &Wait, confirm: &Confirm) -> Result {
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
