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
    /// Show whether the platform was restored from a backup, and what is left to do.
    Status,
    /// List what differs between the records and the nodes, with what was decided.
    Differences {
        #[command(flatten)]
        limit: Limit,
    },
    /// Decide about a difference.
    Settle {
        difference: String,
        #[arg(long, value_enum)]
        decision: Decision,
        /// Why; it is kept with the decision.
        #[arg(long)]
        note: String,
    },
    /// Go on: what was decided is done, and work begins again.
    Resume {
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Decision {
    /// The records stay as they are.
    Keep,
    /// Nothing new is placed on the node.
    Cordon,
    /// The allocation is gone: it is released, and paid for until the time of the backup.
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
            app.confirm(&confirm, "Go on: allocations are launched, released and charged again")?;
            app.out.item(&send!(client.restore_resume()), STATUS)
        }
    }
}
