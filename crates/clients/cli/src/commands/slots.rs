//! `gpuaas slots`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{on_platform, optional, platform_allocations::Verified};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::{Exit, Failure, Result},
    output::{Columns, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// List slots of the whole fleet.
    List {
        /// Only slots in this state.
        #[arg(long, value_parser = [
            "discovered", "approved", "available", "reserved", "in_use", "cleaning", "cleanup_blocked",
            "quarantined",
        ])]
        state: Option<String>,
        /// Only slots with this health.
        #[arg(long, value_parser = ["unknown", "healthy", "degraded", "failed"])]
        health: Option<String>,
        /// Only slots in this region.
        #[arg(long)]
        region: Option<String>,
        /// Only slots of this node, by host name or id.
        #[arg(long)]
        node: Option<String>,
        /// Only slots that serve this product.
        #[arg(long)]
        sku: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a slot with its devices and what blocks it.
    #[command(alias = "get")]
    Show {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
    },
    /// Revoke the approval of a slot.
    Withdraw {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
    },
    /// Quarantine a slot: nothing is placed on it.
    Quarantine {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
    },
    /// Release a slot from quarantine; it can be sold after its node has passed the next probe.
    Restore {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
    },
    /// Retry the cleanup of a slot whose cleanup failed.
    CleanupRetry {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
    },
    /// Confirm that a slot is clean, so that it is sold again.
    ForceCleanup {
        /// Slot, as host name and index (gpu-01/0) or by id.
        slot: String,
        #[command(flatten)]
        verified: Verified,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const CLEANUP: Columns = &[("RUN", "run_id"), ("ALLOCATION", "allocation_id"), ("SLOTS", "slot_ids")];
const CLEANED: Columns = &[("SLOT", "slot_id"), ("ALLOCATION", "allocation_id"), ("REASON", "reason")];

pub const COLUMNS: Columns = &[
    ("NODE", "node_id"),
    ("INDEX", "slot_index"),
    ("STATE", "state"),
    ("HEALTH", "health"),
    ("ID", "id"),
    ("SKU", "sku"),
    ("MODEL", "model"),
    ("KIND", "kind"),
    ("PCI ADDRESS", "pci_address"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    let one = match command {
        Command::List { state, health, region, node, sku, limit } => {
            let node = resolve::optional_node(client, node).await?;
            let (health, state) = (optional("health", health)?, optional("state", state)?);
            let slots: Vec<types::NodeSlot> = pages!(limit.get(), |page| client.slot_list(
                page.cursor(),
                health,
                node.as_deref(),
                page.size(),
                region.as_deref(),
                sku.as_deref(),
                state
            ))?;
            return on_platform::list(app, client, &slots, COLUMNS).await;
        }
        Command::Show { slot } => send!(client.slot_get(&id(client, &slot).await?)),
        Command::Withdraw { slot } => send!(client.slot_withdraw(&id(client, &slot).await?)),
        Command::Quarantine { slot } => send!(client.slot_quarantine(&id(client, &slot).await?)),
        Command::Restore { slot } => send!(client.slot_restore(&id(client, &slot).await?)),
        Command::CleanupRetry { slot } => {
            let begun = send!(client.slot_cleanup_retry(&id(client, &slot).await?));
            note(&format!("See it with `gpuaas ops sagas show {}`.", begun.run_id.as_str()));
            return on_platform::item(app, client, &begun, CLEANUP).await;
        }
        Command::ForceCleanup { slot, verified, confirm } => {
            let (id, body) = (id(client, &slot).await?, verified.body()?);
            app.confirm(&confirm, &format!("Sell {slot} again"))?;
            let cleaned = send!(client.slot_force_cleanup(&id, &body));
            return on_platform::item(app, client, &cleaned, CLEANED).await;
        }
    };
    on_platform::item(app, client, &one, COLUMNS).await
}

/// Slots have no names: `gpu-01/0` is the one with index 0 of gpu-01.
async fn id(client: &Client, text: &str) -> Result<String> {
    let indexed = text.rsplit_once('/').and_then(|(node, index)| Some((node, index.parse::<i32>().ok()?)));
    let Some((hostname, index)) = indexed else {
        return resolve::on_platform(client, &kinds::SLOT, text).await;
    };
    let node = resolve::node(client, hostname).await?;
    let slots: Vec<types::NodeSlot> =
        pages!(None, |page| client.node_slot_list(&node, page.cursor(), page.size()))?;
    let found = slots.iter().find(|slot| slot.slot_index == index);
    found.map(|slot| slot.id.to_string()).ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("{hostname} has no slot {index}"))
            .suggest(format!("List its slots with `gpuaas nodes slots {hostname}`."))
    })
}
