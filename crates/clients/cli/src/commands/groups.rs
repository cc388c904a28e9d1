//! `gpuaas groups`.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use clap::{Args as ClapArgs, Subcommand};
use sdk::types::{self, AllocationGroupDetailState as State};
use tokio::time::Instant;

use super::allocations::{
    Place,
    launch::{more, warn},
    refusal::{Typed, What, quoted},
    show as show_allocations,
};
use crate::{
    app::App,
    args::{Confirm, Format, Limit, Once, Wait},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
    resources::names::{self, Scope},
};

const POLL: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub enum Command {
    /// Launch several machines together: all or none, in one region.
    Create(Create),
    /// List the groups of the project.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a group with its members.
    #[command(alias = "get")]
    Show {
        /// Group, by name or id.
        group: String,
    },
    /// Release all members of a group: their data is deleted, and billing stops.
    Release {
        /// Group, by name or id.
        group: String,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(ClapArgs)]
pub struct Create {
    #[command(flatten)]
    what: What,
    /// Number of machines.
    #[arg(long)]
    members: NonZeroU32,
    /// Name of the group; its members are numbered.
    #[arg(long)]
    name: Option<String>,
    /// Image of virtual machines.
    #[arg(long)]
    image: Option<String>,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    once: Once,
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("MEMBERS", "members"),
    ("OWNER", "created_by"),
    ("CREATED", "created_at"),
    ("ID", "id"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    let place = &Place { app, client, project: resolve::project(app, client).await? };
    let project = place.project.as_str();
    match command {
        Command::Create(launched) => create(place, launched).await,
        Command::List { limit } => {
            let groups: Vec<types::AllocationGroup> = pages!(limit.get(), |page| client
                .allocation_group_list(project, page.cursor(), page.size()))?;
            names::learn(app, client, &Scope::Project(project), &groups).await;
            app.out.list(&groups, COLUMNS)
        }
        Command::Show { group } => {
            let id = resolve::group(client, project, &group).await?;
            show(place, &get(place, &id).await?).await
        }
        Command::Release { group, wait, confirm } => {
            let id = resolve::group(client, project, &group).await?;
            app.confirm(&confirm, &format!("Release all members of {group} and delete their data"))?;
            let releasing = send!(client.allocation_group_release(project, &id));
            let Some(limit) = wait.limit() else { return show(place, &releasing).await };
            let moving =
                [State::Requested, State::Provisioning, State::Active, State::Degraded, State::Releasing];
            let over = settled(place, releasing, limit, &moving).await?;
            show(place, &over).await
        }
    }
}

async fn get(place: &Place<'_>, id: &str) -> Result<types::AllocationGroupDetail> {
    Ok(send!(place.client.allocation_group_get(&place.project, id)))
}

async fn create(place: &Place<'_>, launched: Create) -> Result {
    let Create { what, members, name, image, wait, once } = launched;
    let typed = Typed {
        app: place.app,
        command: "groups create",
        what: &what,
        count: Some(("--members", members.get())),
        more: more(name.as_deref(), image.as_deref(), &wait),
    };
    let body = types::AllocationGroupCreate {
        members,
        sku: what.sku().to_owned(),
        gpus: what.gpus,
        profile: what.profile.clone(),
        region: what.region.clone(),
        name,
        image,
    };
    let key = once.key();
    let sent = Box::pin(place.client.allocation_group_create(&place.project, &key, &body)).await;
    let made = sent.map_err(|error| typed.refused(error.into(), &key))?.into_inner();
    warn(&made.warnings);
    let Some(limit) = wait.limit() else {
        note(&format!("See it with `gpuaas groups show {}`.", quoted(&made.name)));
        return show(place, &made).await;
    };
    let id = made.id.to_string();
    let settled = settled(place, made, limit, &[State::Requested, State::Provisioning]).await?;
    if settled.state != State::Active {
        let failed = settled.allocations.iter().find(|one| one.state == types::AllocationState::Failed);
        let why =
            failed.map(|one| format!(": {} failed: {}", one.name, one.state_reason)).unwrap_or_default();
        return Err(Failure::new(Exit::Server, format!("{id} is {}{why}", settled.state)).suggest(format!(
            "The other members are released as well. See them with `gpuaas groups show {id}`."
        )));
    }
    show(place, &settled).await
}

/// Polls a group until it has left these states, and prints the states of its members.
async fn settled(
    place: &Place<'_>,
    mut group: types::AllocationGroupDetail,
    limit: Duration,
    moving: &[State],
) -> Result<types::AllocationGroupDetail> {
    let deadline = Instant::now() + limit;
    let id = group.id.to_string();
    let go_on = format!("The operation continues. See it with `gpuaas groups show {id}`.");
    let mut told: HashMap<String, types::AllocationState> = HashMap::new();
    loop {
        for one in &group.allocations {
            if told.insert(one.id.to_string(), one.state) != Some(one.state) {
                note(&format!("  {} {}", one.name, one.state));
            }
        }
        let stuck = |one: &types::Allocation| one.state == types::AllocationState::ReleaseFailed;
        if let Some(one) = group.allocations.iter().find(|one| stuck(one)) {
            return Err(Failure::new(
                Exit::Server,
                format!("{} could not be released: {}", one.name, one.state_reason),
            )
            .suggest(format!("Retry with `gpuaas allocations retry {}`.", one.id.as_str())));
        }
        if !moving.contains(&group.state) {
            return Ok(group);
        }
        if Instant::now() + POLL > deadline {
            let text = format!("{id} is still {} after {} s", group.state, limit.as_secs());
            return Err(Failure::new(Exit::Server, text).suggest(go_on));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => {
                return Err(Failure::new(Exit::Interrupted, "stopped waiting").suggest(go_on));
            }
        }
        group = get(place, &id).await?;
    }
}

/// A list of members below the group.
async fn show(place: &Place<'_>, group: &types::AllocationGroupDetail) -> Result {
    let app = place.app;
    if app.out.format != Format::Table {
        return app.out.item(group, COLUMNS);
    }
    let lines = [
        ("name", group.name.clone()),
        ("id", group.id.to_string()),
        ("state", group.state.to_string()),
        ("members", group.members.to_string()),
        ("created by", group.created_by.to_string()),
    ];
    app.out.page(group, &lines, "\n")?;
    show_allocations(place, &group.allocations).await
}
