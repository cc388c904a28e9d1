//! `gpuaas ops discrepancies`.

use clap::Subcommand;
use sdk::{Client, types};

use super::optional;
use crate::{app::App, args::Limit, failure::Result, output::Columns};

#[derive(Subcommand)]
pub enum Command {
    /// List discrepancies. Nothing is repaired automatically.
    List {
        /// Include resolved ones.
        #[arg(long)]
        all: bool,
        /// Only those of this kind.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a discrepancy, and what to do about it.
    #[command(visible_alias = "get")]
    Show { discrepancy: String },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("KIND", "kind"),
    ("SUBJECT", "subject"),
    ("STATE", "state"),
    ("SINCE", "first_seen_at"),
    ("MESSAGE", "message"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { all, kind, limit } => {
            let state = (!all).then_some(types::DiscrepancyState::Open);
            let kind = optional("kind", kind)?;
            let found: Vec<types::Discrepancy> =
                pages!(limit.get(), |page| client.discrepancy_list(page.cursor(), kind, page.size(), state))?;
            app.out.list(&found, COLUMNS)
        }
        Command::Show { discrepancy } => app.out.item(&send!(client.discrepancy_get(&discrepancy)), COLUMNS),
    }
}
