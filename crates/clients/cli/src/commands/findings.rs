//! `gpuaas findings`.

use clap::Subcommand;
use sdk::{Client, types};

use super::{on_platform, optional};
use crate::{app::App, args::Limit, failure::Result, output::Columns, resolve, resources::kinds};

#[derive(Subcommand)]
pub enum Command {
    /// List findings of nodes.
    List {
        /// Only findings in this state.
        #[arg(long, value_parser = ["open", "acknowledged", "resolved"])]
        state: Option<String>,
        /// Only findings of this node, by host name or id.
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
    #[command(alias = "get")]
    Show {
        /// Finding, by id.
        finding: String,
    },
    /// Acknowledge a finding: somebody deals with it.
    Acknowledge {
        /// Finding, by id.
        finding: String,
        /// Note for others, stored with the finding.
        #[arg(long)]
        note: Option<String>,
    },
    /// Resolve a finding. Its action is not reverted: uncordon or release the node yourself.
    Resolve {
        /// Finding, by id.
        finding: String,
        /// Cause and fix, stored with the finding.
        #[arg(long)]
        note: String,
    },
}

const COLUMNS: Columns = &[
    ("NODE", "node_id"),
    ("CODE", "code"),
    ("STATE", "state"),
    ("ACTION", "action"),
    ("LAST SEEN", "last_seen_at"),
    ("ID", "id"),
    ("MESSAGE", "message"),
    ("SUBJECT", "subject"),
    ("SEEN", "seen"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    let one = match command {
        Command::List { state, node, code, action, limit } => {
            let node = resolve::optional_node(client, node).await?;
            let (action, state) = (optional("action", action)?, optional("state", state)?);
            let findings: Vec<types::HealthFinding> = pages!(limit.get(), |page| client.finding_list(
                action,
                code.as_deref(),
                page.cursor(),
                node.as_deref(),
                page.size(),
                state
            ))?;
            return on_platform::list(app, client, &findings, COLUMNS).await;
        }
        Command::Show { finding } => send!(client.finding_get(&id(client, &finding).await?)),
        Command::Acknowledge { finding, note } => {
            let body = types::FindingAcknowledge { note };
            send!(client.finding_acknowledge(&id(client, &finding).await?, &body))
        }
        Command::Resolve { finding, note } => {
            let body = types::FindingResolve { note };
            send!(client.finding_resolve(&id(client, &finding).await?, &body))
        }
    };
    on_platform::item(app, client, &one, COLUMNS).await
}

async fn id(client: &Client, text: &str) -> Result<String> {
    resolve::on_platform(client, &kinds::FINDING, text).await
}
