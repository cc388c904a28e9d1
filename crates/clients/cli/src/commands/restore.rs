//! `gpuaas ops restore`.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::field;
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
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
        difference: String,
        #[arg(long, value_enum)]
        decision: Decision,
        /// Reason, stored with the decision.
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
    ("ID", "id"),
    ("KIND", "kind"),
    ("DECISION", "decision"),
    ("NODE", "node_id"),
    ("ALLOCATION", "allocation_id"),
    ("MESSAGE", "message"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::Status => app.out.item(&send!(client.restore_status_get()), STATUS),
        Command::Differences { limit } => {
            let found: Vec<types::RestoreDifference> =
                pages!(limit.get(), |page| client.restore_difference_list(page.cursor(), page.size()))?;
            app.out.list(&found, DIFFERENCES)
        }
        Command::Settle { difference, decision, note: why } => {
            let body =
                types::RestoreDifferenceSettle { decision: field("decision", decision.name())?, note: why };
            let settled = send!(client.restore_difference_settle(&difference, &body));
            note(&format!("Settled {difference}: {}.", decision.name()));
            app.out.item(&settled, DIFFERENCES)
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
