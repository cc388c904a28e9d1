//! `gpuaas ops discrepancies`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{on_platform, optional};
use crate::{app::App, args::Limit, failure::Result, output::Columns, resolve, resources::kinds};

#[derive(Subcommand)]
pub enum Command {
    /// List discrepancies. Nothing is repaired automatically.
    List {
        /// Include resolved discrepancies.
        #[arg(long)]
        all: bool,
        /// Only discrepancies of this kind.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a discrepancy, and what to do about it.
    #[command(alias = "get")]
    Show {
        /// Discrepancy, by id.
        discrepancy: String,
    },
}

const COLUMNS: Columns = &[
    ("KIND", "kind"),
    ("NODE", "node_id"),
    ("ALLOCATION", "allocation_id"),
    ("STATE", "state"),
    ("SINCE", "first_seen_at"),
    ("ID", "id"),
    ("MESSAGE", "message"),
    ("SUBJECT", "subject"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { all, kind, limit } => {
            let state = (!all).then_some(types::DiscrepancyState::Open);
            let kind = optional("kind", kind)?;
            let found: Vec<types::Discrepancy> =
                pages!(limit.get(), |page| client.discrepancy_list(page.cursor(), kind, page.size(), state))?;
            on_platform::list(app, client, &found, COLUMNS).await
        }
        Command::Show { discrepancy } => {
            let id = resolve::on_platform(client, &kinds::DISCREPANCY, &discrepancy).await?;
            on_platform::item(app, client, &send!(client.discrepancy_get(&id)), COLUMNS).await
        }
    }
}
