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

/// Allocations are named by id, or by a name that only one of the project has.
#[derive(Subcommand)]
pub enum Command {
    /// List the allocations of the project that are not over.
    List {
        /// Those that are over too.
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
    /// Say whether a launch would succeed, what it would cost, and what stands in its way. Nothing is changed.
    Explain(launch::Explain),
    /// Show an allocation and how to log in.
    #[command(visible_alias = "show")]
    Get {
        allocation: String,
        /// Then show what happens to it, until it is over or you stop.
        #[arg(short, long)]
        watch: bool,
    },
    /// Show changes of all allocations of the project, until you stop.
    Watch,
    /// List what happened to an allocation.
    Events {
        allocation: String,
        /// Then show what comes, until it is over or you stop.
        #[arg(short, long)]
        follow: bool,
    },
    /// Release an allocation: what is on it is lost, and it costs nothing from now on.
    Release {
        allocation: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Try a failed release again.
    Retry {
        allocation: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Restart the machine of an allocation; what runs on it is lost.
    Restart {
        allocation: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Who may log in besides the creator.
    #[command(subcommand)]
    Grants(access::GrantsCommand),
    /// The keys on the machine.
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

/// An allocation of the project, and who asks.
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

/// What was asked for: shown, or followed to its end and then shown.
pub async fn begun(place: &Place<'_>, now: types::Allocation, goal: Goal, after: i64, wait: &Wait) -> Result {
    let id = now.id.to_string();
    let Some(limit) = wait.limit() else {
        note(&format!("Follow it with `gpuaas allocations get {id} --watch`."));
        return page::show(place.app, &now);
    };
    let following = Following { client: place.client, project: &place.project, allocation: &id };
    let ended = following.to_the_end(goal, after, limit).await;
    // How it stands is worth seeing whatever came of it, but a result only when there is one.
    ended?;
    page::show(place.app, &place.get(&id).await?)
}

async fn release(place: &Place<'_>, text: &str, wait: &Wait, confirm: &Confirm) -> Result {
    let id = place.allocation(text).await?;
    place.app.confirm(confirm, &format!("Release {text} and lose what is on it"))?;
    let after = watch::last(place, &id).await?;
    let project = place.project.as_str();
    let now = send!(place.client.allocation_release(project, &id));
    // It may have been under way already, or even be over: then all of it is news.
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
    place.app.confirm(confirm, &format!("Restart {text} and lose what runs there"))?;
    let after = watch::last(place, &id).await?;
    let project = place.project.as_str();
    let now = send!(place.client.allocation_restart(project, &id));
    begun(place, now, Goal::Restart, after, wait).await
}
