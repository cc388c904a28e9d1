//! Work for a node, queued and followed.

use clap::Args as ClapArgs;
use sdk::{Client, types};
use serde_json::{Value, json};

use super::Reasoned;
use crate::{
    app::App,
    args::{Confirm, Wait},
    commands::{agents, field, on_platform, slots::COLUMNS as SLOTS, tasks},
    failure::{Exit, Failure, Result},
    output::note,
    resolve,
    resources::{kinds, pick},
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
    /// Node, by host name or id.
    node: String,
    /// Slots, by index on the node or by id.
    #[arg(required_unless_present = "all_ready", conflicts_with = "all_ready")]
    slots: Vec<String>,
    /// Approve every slot that waits for approval and has no blocker.
    #[arg(long)]
    all_ready: bool,
    /// Product that the slots serve.
    #[arg(long)]
    sku: Option<String>,
    #[command(flatten)]
    wait: Wait,
}

pub async fn approve(app: &App, client: &Client, approve: Approve) -> Result {
    let node = resolve::node(client, &approve.node).await?;
    let ids = slot_ids(client, &approve.node, &node, &approve.slots).await?;
    let body = types::SlotsApprove { slot_ids: ids, all_ready: approve.all_ready, sku: approve.sku };
    let approved = send!(client.node_slots_approve(&node, &body));
    let probe = approved.task_id.to_string();
    let Some(limit) = approve.wait.limit() else {
        note(&format!(
            "The node is being probed; its slots can be sold once the probe has passed: `gpuaas tasks show {probe}`."
        ));
        return on_platform::list(app, client, &approved.slots, SLOTS).await;
    };
    let task = send!(client.task_get(&probe));
    let ended = tasks::follow(client, task, limit).await?;
    let slots: Vec<types::NodeSlot> =
        pages!(None, |page| client.node_slot_list(&node, page.cursor(), page.size()))?;
    let named: Vec<&types::NodeSlot> =
        slots.iter().filter(|slot| approved.slots.iter().any(|one| one.id == slot.id)).collect();
    on_platform::list(app, client, &named, SLOTS).await?;
    tasks::succeeded(&ended)?;
    passed(&ended)
}

/// The slots of a node, each by its index on the node, its id or a tail of it.
async fn slot_ids(client: &Client, typed: &str, node: &str, given: &[String]) -> Result<Vec<String>> {
    if given.iter().all(|text| kinds::NODE_SLOT.is_id(text)) {
        return Ok(given.to_vec());
    }
    let slots: Vec<types::NodeSlot> =
        pages!(None, |page| client.node_slot_list(node, page.cursor(), page.size()))?;
    let items: Vec<Value> = slots.iter().map(|slot| json!({ "id": slot.id })).collect();
    let id = |text: &String| {
        let indexed = text.parse::<i32>().ok().and_then(|n| slots.iter().find(|slot| slot.slot_index == n));
        match indexed {
            Some(slot) => Ok(slot.id.to_string()),
            None => pick(&kinds::NODE_SLOT, text, &items).map_err(|failure| match failure.exit {
                Exit::NotFound => Failure::new(Exit::NotFound, format!("{typed} has no slot {text}"))
                    .suggest(format!("List its slots with `gpuaas nodes slots {typed}`.")),
                _ => failure,
            }),
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
    /// Node, by host name or id.
    node: String,
    /// Version to install, as `gpuaas agents list` shows it.
    #[arg(long, value_name = "VERSION", required_unless_present = "sha256")]
    to: Option<String>,
    /// Architecture of the node, when the version exists for several.
    #[arg(long, requires = "to")]
    architecture: Option<String>,
    /// Digest of the agent program to install, instead of its version.
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
