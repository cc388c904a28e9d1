//! `gpuaas auth sessions`.

use clap::Subcommand;
use sdk::types;

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
    resources::{find, kinds},
};

#[derive(Subcommand)]
pub enum Command {
    /// List your sessions.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Revoke a session; its tokens stop working immediately.
    Revoke {
        /// Session, by id or the tail of its id.
        session: String,
    },
    /// Revoke all sessions except this one.
    RevokeOthers {
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns = &[
    ("CLIENT", "client_id"),
    ("CURRENT", "current"),
    ("FROM", "source_ip"),
    ("LAST SEEN", "last_seen_at"),
    ("EXPIRES", "expires_at"),
    ("ID", "id"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::List { limit } => {
            let sessions: Vec<types::Session> =
                pages!(limit.get(), |page| client.session_list(page.cursor(), page.size()))?;
            app.out.list(&sessions, COLUMNS)
        }
        Command::Revoke { session } => {
            let id = find(&client, &kinds::SESSION, &[], &session).await?;
            send!(client.session_revoke(&id));
            note(&format!("Revoked {session}."));
            Ok(())
        }
        Command::RevokeOthers { confirm } => {
            app.confirm(&confirm, "Revoke all your other sessions")?;
            send!(client.session_revoke_others());
            note("Revoked all other sessions.");
            Ok(())
        }
    }
}
