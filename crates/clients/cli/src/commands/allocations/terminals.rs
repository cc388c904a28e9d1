//! Terminal sessions of an allocation. `gpuaas terminal` starts them and comes back to them.

use clap::Subcommand;
use kernel::ids::TerminalSessionId;
use sdk::types;

use super::Place;
use crate::{
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the terminal sessions.
    List {
        /// Allocation, by name or id.
        allocation: String,
        /// Only sessions that are open.
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        limit: Limit,
    },
    /// End a terminal session, with everything that runs in it.
    Delete {
        /// Allocation, by name or id.
        allocation: String,
        /// Session, by id.
        session: TerminalSessionId,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("ID", "id"),
    ("OWNER", "created_by"),
    ("CREATED", "created_at"),
    ("ATTACHED", "last_attached_at"),
    ("ENDED", "ended_at"),
    ("REASON", "end_reason"),
    ("STATUS", "exit_status"),
    ("EXPIRES", "expires_at"),
];

pub async fn run(place: &Place<'_>, command: Command) -> Result {
    let (client, project) = (place.client, place.project.as_str());
    match command {
        Command::List { allocation, open, limit } => {
            let id = place.allocation(&allocation).await?;
            let open = open.then_some(true);
            let sessions: Vec<types::TerminalSession> = pages!(limit.get(), |page| client
                .terminal_session_list(project, &id, page.cursor(), open, page.size()))?;
            names::learn(place.app, client, &Scope::Project(project), &sessions).await;
            place.app.out.list(&sessions, COLUMNS)
        }
        Command::Delete { allocation, session, confirm } => {
            let id = place.allocation(&allocation).await?;
            place
                .app
                .confirm(&confirm, &format!("End the session {session} and everything that runs in it"))?;
            send!(client.terminal_session_delete(project, &id, &session.to_string()));
            note("The session is being ended.");
            Ok(())
        }
    }
}
