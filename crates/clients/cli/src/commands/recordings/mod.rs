//! `gpuaas recordings`: what happened in terminal sessions.

mod cast;
mod cast_file;
mod download;
mod screen;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;
use kernel::ids::TerminalSessionId;
use sdk::types;

use self::download::Trust;
use crate::{
    app::App,
    args::Limit,
    failure::{Exit, Failure, Result},
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
        /// Accept a recording that fails verification.
        #[arg(long)]
        unverified: bool,
    },
    /// Verify a recording, then play what of it draws in this terminal. It is noted in the audit trail.
    Replay {
        /// Allocation, by name or id.
        allocation: String,
        /// Session, by id.
        session: TerminalSessionId,
        #[command(flatten)]
        pace: cast::Pace,
        /// Play a recording that fails verification.
        #[arg(long)]
        unverified: bool,
    },
    /// Verify a downloaded recording offline: that nothing was changed, removed or moved.
    Verify {
        /// Directory that `download` made.
        dir: PathBuf,
        /// Key of the installation, which `download` prints: the public key in hexadecimal, or its id.
        #[arg(long, value_name = "KEY")]
        key: Vec<String>,
        /// Session whose recording it must be; by default the one that the directory is named after.
        #[arg(long, value_name = "SESSION")]
        session: Option<TerminalSessionId>,
    },
}

const COLUMNS: Columns = &[
    ("SESSION", "session_id"),
    ("OWNER", "created_by"),
    ("MODE", "mode"),
    ("STARTED", "started_at"),
    ("SEALED", "sealed_at"),
    ("COMPLETE", "complete"),
    ("TAMPERING", "tampering"),
    ("OUTPUT", "output_bytes"),
    ("CHUNKS", "chunks"),
    ("EXPIRES", "expires_at"),
    ("DELETED", "deleted_at"),
];

fn trust(unverified: bool) -> Trust {
    if unverified { Trust::Unverified } else { Trust::Verified }
}

/// Ctrl-C drops the work, and with it what must not stay: half a file, or a changed screen.
async fn until_interrupted(work: impl Future<Output = Result>, stopped: &str) -> Result {
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, stopped)),
    }
}

pub async fn run(app: &App, command: Command) -> Result {
    if let Command::Verify { dir, key, session } = &command {
        return verify::run(app, dir, key, *session);
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
        Command::Download { allocation, session, dir, cast, unverified } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let opened = download::Source::open(&client, &project, &id, session).await?;
            let Some(file) = cast else {
                return download::write_directory(opened, dir, trust(unverified)).await;
            };
            let written = cast::write_file(opened, &file, trust(unverified), &app.ambient);
            until_interrupted(written, "the download was stopped").await
        }
        Command::Replay { allocation, session, pace, unverified } => {
            let id = resolve::allocation(&client, &project, &allocation).await?;
            let opened = download::Source::open(&client, &project, &id, session).await?;
            until_interrupted(cast::replay(opened, &pace, trust(unverified)), "the replay was stopped").await
        }
        Command::Verify { .. } => Ok(()),
    }
}
