//! `gpuaas recordings`: what happened in terminal sessions.

mod cast;
mod download;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;
use kernel::ids::TerminalSessionId;
use sdk::types;

use crate::{
    app::App,
    args::Limit,
    failure::Result,
    output::Columns,
    resolve,
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the recordings of an allocation's terminal sessions.
    List {
        /// Allocation, by name or id.
        allocation: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a recording.
    #[command(alias = "get")]
    Show {
        /// Allocation, by name or id.
        allocation: String,
        /// Session, by id.
        session: TerminalSessionId,
    },
    /// Download a recording, as it is stored or as one asciicast file. It is noted in the audit trail.
    Download {
        /// Allocation, by name or id.
        allocation: String,
        /// Session, by id.
        session: TerminalSessionId,
        /// Directory that is made for the chunks and the seal; named after the session by default.
        #[arg(long, value_name = "DIR", conflicts_with = "cast")]
        dir: Option<PathBuf>,
        /// Write one asciicast v2 file instead; `-` for standard output.
        #[arg(long, value_name = "FILE")]
        cast: Option<String>,
    },
    /// Play a recording in this terminal. It is noted in the audit trail.
    Replay {
        /// Allocation, by name or id.
        allocation: String,
        /// Session, by id.
        session: TerminalSessionId,
        #[command(flatten)]
        pace: cast::Pace,
    },
    /// Verify a downloaded recording offline: that nothing was changed, removed or moved.
    Verify {
        /// Directory that `download` made.
        dir: PathBuf,
        /// Accept seals by these keys only: the public key in hexadecimal, or its id.
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
    },
}

const COLUMNS: Columns = &[
    ("SESSION", "session_id"),
    ("OWNER", "created_by"),
    ("MODE", "mode"),
    ("STARTED", "started_at"),
    ("SEALED", "sealed_at"),
    ("COMPLETE", "complete"),
    ("OUTPUT", "output_bytes"),
    ("CHUNKS", "chunks"),
    ("EXPIRES", "expires_at"),
    ("DELETED", "deleted_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    if let Command::Verify { dir, key } = &command {
        return verify::run(app, dir, key);
    }
    let client = app.client().await?;
    let project = resolve::project(app, &client).await?;
    match command {
        Command::List { allocation, limit } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let found: Vec<types::SessionRecording> = pages!(limit.get(), |page| client
                .terminal_recording_list(&project, &id, page.cursor(), page.size()))?;
            names::learn(app, &client, &Scope::Project(&project), &found).await;
            app.out.list(&found, COLUMNS)
        }
        Command::Show { allocation, session } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let found = send!(client.terminal_recording_get(&project, &id, &session.to_string()));
            names::learn(app, &client, &Scope::Project(&project), std::slice::from_ref(&found)).await;
            app.out.item(&found, COLUMNS)
        }
        Command::Download { allocation, session, dir, cast } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let opened = download::Source::open(&client, &project, &id, session).await?;
            match cast {
                Some(file) => cast::write_file(opened, &file).await,
                None => download::write_directory(opened, dir).await,
            }
        }
        Command::Replay { allocation, session, pace } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let opened = download::Source::open(&client, &project, &id, session).await?;
            cast::replay(opened, &pace).await
        }
        Command::Verify { .. } => Ok(()),
    }
}
