//! `gpuaas slots`.

use clap::Subcommand;
use sdk::types;

use super::{optional, platform_allocations::Verified};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List slots of the whole fleet.
    List {
        #[arg(long, value_parser = [
            "discovered", "approved", "available", "reserved", "in_use", "cleaning", "cleanup_blocked",
            "quarantined",
        ])]
        state: Option<String>,
        #[arg(long, value_parser = ["unknown", "healthy", "degraded", "failed"])]
        health: Option<String>,
        /// Only slots in this region.
        #[arg(long)]
        region: Option<String>,
        /// Only slots of this node, by id or host name.
        #[arg(long)]
        node: Option<String>,
        /// Only slots that serve this product.
        #[arg(long)]
        sku: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a slot.
    #[command(visible_alias = "get")]
    Show { slot: String },
    /// Revoke the approval of a slot.
    Withdraw { slot: String },
    /// Quarantine a slot: nothing is placed on it.
    Quarantine { slot: String },
    /// Release a slot from quarantine; it can be sold after its node has passed the next probe.
    Restore { slot: String },
    /// Retry the cleanup of a slot whose cleanup failed.
    CleanupRetry { slot: String },
    /// Confirm that a slot is clean, so that it is sold again.
    ForceCleanup {
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
    ("ID", "id"),
    ("NODE", "node_id"),
    ("INDEX", "slot_index"),
    ("KIND", "kind"),
    ("MODEL", "model"),
    ("STATE", "state"),
    ("HEALTH", "health"),
    ("PCI ADDRESS", "pci_address"),
    ("SKU", "sku"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let one = match command {
        Command::List { state, health, region, node, sku, limit } => {
            let node = resolve::optional_node(&client, node).await?;
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
            return app.out.list(&slots, COLUMNS);
        }
        Command::Show { slot } => send!(client.slot_get(&slot)),
        Command::Withdraw { slot } => send!(client.slot_withdraw(&slot)),
        Command::Quarantine { slot } => send!(client.slot_quarantine(&slot)),
        Command::Restore { slot } => send!(client.slot_restore(&slot)),
        Command::CleanupRetry { slot } => {
            let begun = send!(client.slot_cleanup_retry(&slot));
            note(&format!("See it with `gpuaas ops sagas show {}`.", begun.run_id.as_str()));
            return app.out.item(&begun, CLEANUP);
        }
        Command::ForceCleanup { slot, verified, confirm } => {
            let body = verified.body()?;
            app.confirm(&confirm, &format!("Sell {slot} again"))?;
            return app.out.item(&send!(client.slot_force_cleanup(&slot, &body)), CLEANED);
        }
    };
    app.out.item(&one, COLUMNS)
}
