//! Work for a node, queued and followed.

use clap::Args as ClapArgs;
use sdk::{Client, types};

use super::Reasoned;
use crate::{
    app::App,
    args::{Confirm, Wait},
    commands::{agents, field, slots::COLUMNS as SLOTS, tasks},
    failure::{Exit, Failure, Result},
    output::note,
    resolve,
};

pub const PARTS: [&str; 6] = ["agent_log", "kernel_log", "mounts", "memory", "gpu_driver", "processes"];

pub async fn discover(app: &App, client: &Client, node: &str, wait: &Wait) -> Result {
    let node = resolve::node(client, node).await?;
    tasks::queued(app, client, send!(client.node_discover(&node)), wait).await
}

pub async fn validate(app: &App, client: &Client, node: &str, profile: &str, wait: &Wait) -> Result {
    let body = types::NodeValidate { profile: field("profile", profile)? };
    let node = resolve::node(client, node).await?;
    let task = send!(client.node_validate(&node, &body));
    if wait.limit().is_none() {
        return tasks::queued(app, client, task, wait).await;
    }
    tasks::queued(app, client, task.clone(), wait).await?;
    passed(&send!(client.task_get(&task.id)))
}

/// A probe can succeed as a task and still have failed checks.
fn passed(task: &types::NodeTask) -> Result {
    match &task.outcome {
        Some(types::Ending::Succeeded { output }) if output["passed"] == false => {
            let failed =
                output["checks"].as_array().into_iter().flatten().filter(|check| check["passed"] == false);
            let names: Vec<&str> = failed.filter_map(|check| check["name"].as_str()).collect();
            Err(Failure::new(Exit::Server, format!("the node failed these checks: {}", names.join(", "))))
        }
        _ => Ok(()),
    }
}

#[derive(ClapArgs)]
pub struct Approve {
    node: String,
    /// Slots, by id or by index on the node.
    #[arg(required_unless_present = "all_ready", conflicts_with = "all_ready")]
    slots: Vec<String>,
    /// Approve every slot that waits for approval and has no blocker.
    #[arg(long)]
    all_ready: bool,
    /// The product that the slots serve.
    #[arg(long)]
    sku: Option<String>,
    #[command(flatten)]
    wait: Wait,
}

pub async fn approve(app: &App, client: &Client, approve: Approve) -> Result {
    let node = resolve::node(client, &approve.node).await?;
    let ids = slot_ids(client, &node, &approve.slots).await?;
    let body = types::SlotsApprove { slot_ids: ids, all_ready: approve.all_ready, sku: approve.sku };
    let approved = send!(client.node_slots_approve(&node, &body));
    let probe = approved.task_id.to_string();
    let Some(limit) = approve.wait.limit() else {
        note(&format!(
            "The node is being probed; its slots can be sold once the probe has passed: `gpuaas tasks show {probe}`."
        ));
        return app.out.list(&approved.slots, SLOTS);
    };
    let task = send!(client.task_get(&probe));
    let ended = tasks::follow(client, task, limit).await?;
    let slots: Vec<types::NodeSlot> =
        pages!(None, |page| client.node_slot_list(&node, page.cursor(), page.size()))?;
    let named: Vec<&types::NodeSlot> =
        slots.iter().filter(|slot| approved.slots.iter().any(|one| one.id == slot.id)).collect();
    app.out.list(&named, SLOTS)?;
    tasks::succeeded(&ended)?;
    passed(&ended)
}

/// Slot ids unchanged; numbers are slot indexes on the node.
async fn slot_ids(client: &Client, node: &str, given: &[String]) -> Result<Vec<String>> {
    if given.iter().all(|text| text.parse::<i32>().is_err()) {
        return Ok(given.to_vec());
    }
    let slots: Vec<types::NodeSlot> =
        pages!(None, |page| client.node_slot_list(node, page.cursor(), page.size()))?;
    let id = |text: &String| match text.parse::<i32>() {
        Err(_) => Ok(text.clone()),
        Ok(index) => {
            let found = slots.iter().find(|slot| slot.slot_index == index);
            found.map(|slot| slot.id.to_string()).ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("the node has no slot {index}"))
                    .suggest("List its slots with `gpuaas nodes slots`.")
            })
        }
    };
    given.iter().map(id).collect()
}

pub async fn reboot(
    app: &App,
    client: &Client,
    reasoned: Reasoned,
    wait: &Wait,
    confirm: &Confirm,
) -> Result {
    let body = types::Because { reason: reasoned.reason.clone() };
    let node = resolve::node(client, &reasoned.node).await?;
    app.confirm(confirm, &format!("Restart {} and terminate everything that runs on it", reasoned.node))?;
    tasks::queued(app, client, send!(client.node_reboot(&node, &body)), wait).await
}

#[derive(ClapArgs)]
pub struct AgentUpdate {
    node: String,
    /// An available agent version.
    #[arg(long, value_name = "VERSION", required_unless_present = "sha256")]
    to: Option<String>,
    /// The node's architecture, when the version exists for several.
    #[arg(long, requires = "to")]
    architecture: Option<String>,
    /// The digest of an available agent program.
    #[arg(long, conflicts_with = "to")]
    sha256: Option<String>,
    #[command(flatten)]
    wait: Wait,
}

pub async fn agent_update(app: &App, client: &Client, update: AgentUpdate) -> Result {
    let digest = match (update.sha256, update.to) {
        (Some(digest), _) => digest,
        (None, to) => {
            agents::digest(client, to.as_deref().unwrap_or_default(), update.architecture.as_deref()).await?
        }
    };
    let body = types::AgentUpdate { sha256: digest };
    let node = resolve::node(client, &update.node).await?;
    let task = send!(client.node_agent_update(&node, &body));
    tasks::queued(app, client, task, &update.wait).await
}

pub async fn collect(app: &App, client: &Client, node: &str, parts: Vec<String>, wait: &Wait) -> Result {
    let parts = if parts.is_empty() { PARTS.map(str::to_owned).to_vec() } else { parts };
    let parts = parts.iter().map(|part| field("part", part)).collect::<Result<_>>()?;
    let node = resolve::node(client, node).await?;
    let task = send!(client.node_collect(&node, &types::NodeCollect { parts }));
    tasks::queued(app, client, task, wait).await
}
