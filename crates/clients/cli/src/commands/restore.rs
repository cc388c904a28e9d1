//! `gpuaas ops restore`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, on_platform};
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// Show whether the platform is in restore mode, and the open differences.
    Status,
    /// List the differences between the database and the nodes, with the decisions.
    Differences {
        #[command(flatten)]
        limit: Limit,
    },
    /// Decide how to settle a difference.
    Settle {
        /// Difference, by id.
        difference: String,
        /// How to settle it.
        #[arg(long, value_enum)]
        decision: Decision,
        /// Reason of the decision, stored with it.
        #[arg(long)]
        note: String,
    },
    /// Resume: apply the decisions and leave restore mode.
    Resume {
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Decision {
    /// Keep the records unchanged.
    Keep,
    /// Cordon the node: no new placements.
    Cordon,
    /// The allocation no longer exists: release it, and bill it until the time of the backup.
    End,
}

impl Decision {
    const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Cordon => "cordon",
            Self::End => "end",
        }
    }
}

const STATUS: Columns = &[
    ("MODE", "mode"),
    ("RESTORED", "restored_at"),
    ("RECORDS OF", "state_at"),
    ("BECAUSE", "because"),
    ("NODES UNHEARD", "nodes_unheard"),
    ("NODES UNCOMPARED", "nodes_uncompared"),
    ("DIFFERENCES", "differences"),
    ("UNDECIDED", "undecided"),
];
const DIFFERENCES: Columns = &[
    ("KIND", "kind"),
    ("DECISION", "decision"),
    ("NODE", "node_id"),
    ("ALLOCATION", "allocation_id"),
    ("MESSAGE", "message"),
    ("ID", "id"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::Status => app.out.item(&send!(client.restore_status_get()), STATUS),
        Command::Differences { limit } => {
            let found: Vec<types::RestoreDifference> =
                pages!(limit.get(), |page| client.restore_difference_list(page.cursor(), page.size()))?;
            on_platform::list(app, client, &found, DIFFERENCES).await
        }
        Command::Settle { difference, decision, note: why } => {
            let body =
                types::RestoreDifferenceSettle { decision: field("decision", decision.name())?, note: why };
            let id = resolve::on_platform(client, &kinds::DIFFERENCE, &difference).await?;
            let settled = send!(client.restore_difference_settle(&id, &body));
            note(&format!("Settled {difference}: {}.", decision.name()));
            on_platform::item(app, client, &settled, DIFFERENCES).await
        }
        Command::Resume { confirm } => {
            app.confirm(
                &confirm,
                "Leave restore mode: allocations are launched, released and charged again",
            )?;
            app.out.item(&send!(client.restore_resume()), STATUS)
        }
    }
}
