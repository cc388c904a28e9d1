//! `gpuaas platform allocations`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{optional, sagas};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Failure, Result},
    output::Columns,
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List allocations of all organizations.
    List {
        #[arg(long, value_parser = [
            "requested", "provisioning", "active", "releasing", "released", "release_failed", "failed",
        ])]
        state: Option<String>,
        /// Only allocations on this node, by id or host name.
        #[arg(long)]
        node: Option<String>,
        /// Only allocations of this product.
        #[arg(long)]
        sku: Option<String>,
        /// Only allocations of this organization, by id.
        #[arg(long, value_name = "ORG")]
        of_org: Option<String>,
        /// Only allocations of this project, by id.
        #[arg(long, value_name = "PROJECT")]
        of_project: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an allocation with its node and its workflow runs.
    #[command(visible_alias = "show")]
    Get { allocation: String },
    /// Release an allocation of any organization, or retry a failed release.
    ForceRelease {
        allocation: String,
        /// Reason, visible to the project.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Complete a release that cannot finish by itself: its capacity is sold again.
    ForceCleanup {
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
    /// You checked the machine: no data of the former user is left on it.
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
    ("ID", "id"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("SKU", "sku"),
    ("GPUS", "gpus"),
    ("REGION", "region"),
    ("NODE", "node_id"),
    ("ORG", "org_id"),
    ("REASON", "state_reason"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { state, node, sku, of_org, of_project, limit } => {
            let node = resolve::optional_node(client, node).await?;
            let state = optional("state", state)?;
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
            app.out.list(&found, COLUMNS)
        }
        Command::Get { allocation } => {
            let found = send!(client.platform_allocation_get(id(&allocation)?));
            show(app, &found)
        }
        Command::ForceRelease { allocation, reason, confirm } => {
            let body = types::ForceRelease { reason };
            app.confirm(&confirm, &format!("Release {allocation} and delete its data"))?;
            app.out.item(&send!(client.platform_allocation_force_release(id(&allocation)?, &body)), COLUMNS)
        }
        Command::ForceCleanup { allocation, verified, confirm } => {
            let body = verified.body()?;
            app.confirm(&confirm, &format!("Sell the capacity of {allocation} again"))?;
            app.out.item(&send!(client.platform_allocation_force_cleanup(id(&allocation)?, &body)), COLUMNS)
        }
    }
}

/// Names are unique only within a project.
fn id(text: &str) -> Result<&str> {
    if text.starts_with("alloc_") {
        return Ok(text);
    }
    Err(Failure::client(format!("{text:?} is not the id of an allocation"))
        .suggest("List allocations with `gpuaas platform allocations list`."))
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
        ("org_id", found.org_id.to_string()),
        ("project_id", found.project_id.to_string()),
        ("creator_id", found.creator_id.clone()),
        ("sku", found.sku.clone()),
        ("gpus", found.gpus.to_string()),
        ("region", found.region.clone()),
        ("node_id", found.node_id.to_string()),
        ("slot_ids", slots.join("\n")),
        ("isolation_model", found.isolation_model.to_string()),
        ("created_at", time(&found.created_at)),
    ];
    app.out.page(found, &lines, &sagas::timeline(&found.timeline))
}
