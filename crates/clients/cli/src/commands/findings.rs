//! `gpuaas findings`.

use clap::Subcommand;
use sdk::types;

use super::optional;
use crate::{app::App, args::Limit, failure::Result, output::Columns, resolve};

#[derive(Subcommand)]
pub enum Command {
    /// List findings.
    List {
        #[arg(long, value_parser = ["open", "acknowledged", "resolved"])]
        state: Option<String>,
        /// Only findings of this node, by id or host name.
        #[arg(long)]
        node: Option<String>,
        /// Only findings with this code, such as xid.79.
        #[arg(long)]
        code: Option<String>,
        /// Only findings with this action.
        #[arg(long, value_parser = super::health::ACTIONS)]
        action: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a finding with its evidence.
    #[command(visible_alias = "get")]
    Show { finding: String },
    /// Acknowledge a finding.
    Acknowledge {
        finding: String,
        #[arg(long)]
        note: Option<String>,
    },
    /// Resolve a finding. Its action is not reverted: uncordon or release the node yourself.
    Resolve {
        finding: String,
        /// Cause and fix.
        #[arg(long)]
        note: String,
    },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("NODE", "node_id"),
    ("CODE", "code"),
    ("SUBJECT", "subject"),
    ("ACTION", "action"),
    ("STATE", "state"),
    ("SEEN", "seen"),
    ("LAST SEEN", "last_seen_at"),
    ("MESSAGE", "message"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    let one = match command {
        Command::List { state, node, code, action, limit } => {
            let node = resolve::optional_node(&client, node).await?;
            let (action, state) = (optional("action", action)?, optional("state", state)?);
            let findings: Vec<types::HealthFinding> = pages!(limit.get(), |page| client.finding_list(
                action,
                code.as_deref(),
                page.cursor(),
                node.as_deref(),
                page.size(),
                state
            ))?;
            return app.out.list(&findings, COLUMNS);
        }
        Command::Show { finding } => send!(client.finding_get(&finding)),
        Command::Acknowledge { finding, note } => {
            let body = types::FindingAcknowledge { note };
            send!(client.finding_acknowledge(&finding, &body))
        }
        Command::Resolve { finding, note } => {
            let body = types::FindingResolve { note };
            send!(client.finding_resolve(&finding, &body))
        }
    };
    app.out.item(&one, COLUMNS)
}
