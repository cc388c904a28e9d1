//! `gpuaas platform allocations`.

use clap::Subcommand;
use sdk::{Client, types};
use serde_json::json;

use super::{on_platform, optional, sagas};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Exit, Failure, Result},
    output::Columns,
    resolve,
    resources::{
        find, kinds,
        names::{Scope, learn},
        pick,
    },
};

#[derive(Subcommand)]
pub enum Command {
    /// List allocations of all organizations.
    List {
        /// Only allocations in this state.
        #[arg(long, value_parser = [
            "requested", "provisioning", "active", "releasing", "released", "release_failed", "failed",
        ])]
        state: Option<String>,
        /// Only allocations on this node, by host name or id.
        #[arg(long)]
        node: Option<String>,
        /// Only allocations of this product.
        #[arg(long)]
        sku: Option<String>,
        /// Only allocations of this organization, by slug or id.
        #[arg(long, value_name = "ORG")]
        of_org: Option<String>,
        /// Only allocations of this project, by id; by slug or name with --of-org.
        #[arg(long, value_name = "PROJECT")]
        of_project: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an allocation with its node and its workflow runs.
    #[command(alias = "get")]
    Show {
        /// Allocation, by name or id.
        allocation: String,
    },
    /// Release an allocation of any organization, or retry a failed release.
    ForceRelease {
        /// Allocation, by name or id.
        allocation: String,
        /// Reason, visible to the project.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Complete a release that cannot finish by itself: its capacity is sold again.
    ForceCleanup {
        /// Allocation, by name or id.
        allocation: String,
        #[command(flatten)]
        verified: Verified,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// What only a person can confirm.
#[derive(clap::Args)]
pub struct Verified {
    /// Confirm that you checked the machine: no data of the former user is left on it.
    #[arg(long, required = true)]
    runtime_verified_absent: bool,
    /// Reason and how you checked, visible to the project.
    #[arg(long)]
    reason: String,
}

impl Verified {
    pub fn body(&self) -> Result<types::ForceCleanup> {
        let runtime_verified_absent = self.runtime_verified_absent;
        Ok(types::ForceCleanup { runtime_verified_absent, reason: self.reason.clone() })
    }
}

const COLUMNS: Columns = &[
    ("NAME", "name"),
    ("STATE", "state"),
    ("ORG", "org_id"),
    ("NODE", "node_id"),
    ("SKU", "sku"),
    ("GPUS", "gpus"),
    ("ID", "id"),
    ("OWNER", "creator_id"),
    ("REGION", "region"),
    ("REASON", "state_reason"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { state, node, sku, of_org, of_project, limit } => {
            let node = resolve::optional_node(client, node).await?;
            let state = optional("state", state)?;
            let of_org = resolve::optional(client, &kinds::PLATFORM_ORG, &[], of_org.as_deref()).await?;
            let of_project = project(client, of_org.as_deref(), of_project).await?;
            let found: Vec<types::PlatformAllocation> = pages!(limit.get(), |page| client
                .platform_allocation_list(
                    page.cursor(),
                    node.as_deref(),
                    of_org.as_deref(),
                    page.size(),
                    of_project.as_deref(),
                    sku.as_deref(),
                    state
                ))?;
            on_platform::list(app, client, &found, COLUMNS).await
        }
        Command::Show { allocation } => {
            let found = send!(client.platform_allocation_get(&id(client, &allocation).await?));
            learn(app, client, &Scope::Platform, std::slice::from_ref(&found)).await;
            show(app, &found)
        }
        Command::ForceRelease { allocation, reason, confirm } => {
            let (id, body) = (id(client, &allocation).await?, types::ForceRelease { reason });
            app.confirm(
                &confirm,
                &format!("Release {} and delete its data", whose(app, client, &id).await?),
            )?;
            let released = send!(client.platform_allocation_force_release(&id, &body));
            on_platform::item(app, client, &released, COLUMNS).await
        }
        Command::ForceCleanup { allocation, verified, confirm } => {
            let (id, body) = (id(client, &allocation).await?, verified.body()?);
            app.confirm(&confirm, &format!("Sell the capacity of {} again", whose(app, client, &id).await?))?;
            let cleaned = send!(client.platform_allocation_force_cleanup(&id, &body));
            on_platform::item(app, client, &cleaned, COLUMNS).await
        }
    }
}

/// The allocation in a question: tenants choose names, so that a name alone says nothing.
async fn whose(app: &App, client: &Client, id: &str) -> Result<String> {
    let found = send!(client.platform_allocation_get(id));
    learn(app, client, &Scope::Platform, std::slice::from_ref(&found)).await;
    Ok(format!("{} ({id}) of {}", found.name, app.out.name_of(&found.org_id)))
}

/// Not more are fetched in each state to find one by its tail.
const SEARCHED: usize = 2_000;

/// By its id or a tail of it: among those that have not ended first.
async fn id(client: &Client, text: &str) -> Result<String> {
    if kinds::PLATFORM_ALLOCATION.is_id(text) {
        return Ok(text.to_owned());
    }
    let mut live = Vec::new();
    for state in ["requested", "provisioning", "active", "releasing", "release_failed"] {
        let state = optional("state", Some(state))?;
        let (node, org, project, sku) = (None, None, None, None);
        let found: Vec<types::PlatformAllocation> = pages!(Some(SEARCHED), |page| client
            .platform_allocation_list(page.cursor(), node, org, page.size(), project, sku, state))?;
        live.extend(found.iter().map(|one| json!({ "id": one.id })));
    }
    match pick(&kinds::PLATFORM_ALLOCATION, text, &live) {
        Err(failure) if failure.exit == Exit::NotFound => {
            find(client, &kinds::PLATFORM_ALLOCATION, &[], text).await
        }
        found => found,
    }
}

async fn project(client: &Client, org: Option<&str>, text: Option<String>) -> Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    match org {
        Some(org) => find(client, &kinds::PROJECT, &[("org", org)], &text).await.map(Some),
        None if kinds::PROJECT.is_id(&text) => Ok(Some(text)),
        None => Err(Failure::client(format!("{text:?} is not the id of a project"))
            .suggest("Names of projects are unique only within an organization: add --of-org ORG.")),
    }
}

fn show(app: &App, found: &types::PlatformAllocationDetail) -> Result {
    let slots: Vec<String> = found.slot_ids.iter().map(|id| id.as_str().to_owned()).collect();
    let time = |at: &chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let reason =
        if found.state_reason.is_empty() { String::new() } else { format!(": {}", found.state_reason) };
    let lines = [
        ("id", found.id.to_string()),
        ("name", found.name.clone()),
        ("state", format!("{}{reason}", found.state)),
        ("since", time(&found.state_changed_at)),
        ("org", found.org_id.to_string()),
        ("project", found.project_id.to_string()),
        ("created by", found.creator_id.clone()),
        ("sku", found.sku.clone()),
        ("gpus", found.gpus.to_string()),
        ("region", found.region.clone()),
        ("node", found.node_id.to_string()),
        ("slots", slots.join("\n")),
        ("isolation", found.isolation_model.to_string()),
        ("created", time(&found.created_at)),
    ];
    app.out.page(found, &lines, &sagas::timeline(&found.timeline))
}
