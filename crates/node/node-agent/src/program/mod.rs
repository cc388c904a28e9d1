//! The program `gpuaas-agent`: its command line, and what each command puts together.

mod doctor;
mod join;
mod logging;
mod run;

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use kernel::{Ambient, ids::NodeId};

use crate::{
    config::{Config, ConfigError, Roots},
    identity::{Facts, IdentityError},
    journal::JournalError,
    session::AgentError,
};

/// What this program says it is. A build may be given a version of its own, to try an update.
pub const VERSION: &str = match option_env!("GPUAAS_AGENT_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

#[derive(Parser)]
#[command(name = "gpuaas-agent", version = VERSION, about = "The GPUaaS agent of one node")]
struct Cli {
    /// The configuration [default: /etc/gpuaas-agent/agent.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run tasks of the control plane until stopped
    Run,
    /// Enrol with a bootstrap token
    Enroll(EnrollArgs),
    /// Enrol again with a repair token, when the certificate has expired or was revoked
    Repair(RepairArgs),
    /// Check the node, and print failed checks with suggestions
    Doctor,
    /// Print the version
    Version,
    /// Roll back to the previous program if the new one does not start; run by the service manager before each start
    #[command(hide = true)]
    Guard,
}

#[derive(Args)]
struct EnrollArgs {
    /// The address of the node listener, https://host:port
    #[arg(long)]
    url: String,
    /// The id of the node, printed when it was created
    #[arg(long)]
    node_id: NodeId,
    /// The host name of the node, as given when it was created
    #[arg(long)]
    hostname: String,
    /// SHA-256 of the control plane's root certificate, in hex; several separated by commas
    #[arg(long, required = true, value_delimiter = ',')]
    root_sha256: Vec<String>,
    /// The public key, in hex, that signs the keyset
    #[arg(long)]
    keyset_key: String,
    #[command(flatten)]
    token: TokenArgs,
}

/// Omitted values are those of the first enrolment.
#[derive(Args)]
struct RepairArgs {
    #[arg(long)]
    url: Option<String>,
    #[arg(long)]
    node_id: Option<NodeId>,
    #[arg(long)]
    hostname: Option<String>,
    #[arg(long, value_delimiter = ',')]
    root_sha256: Vec<String>,
    #[arg(long)]
    keyset_key: Option<String>,
    #[command(flatten)]
    token: TokenArgs,
}

#[derive(Args)]
struct TokenArgs {
    /// A file that holds the token [default: standard input]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("{0}")]
    Other(String),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
}

impl ProgramError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Version => print_line(VERSION).map(|()| ExitCode::SUCCESS),
        Command::Doctor => doctor::doctor(cli.config.as_deref()),
        Command::Run => load(cli.config).and_then(run::run),
        Command::Guard => load(cli.config).and_then(run::guard),
        Command::Enroll(args) => load(cli.config).and_then(|config| join::enroll(&config, args)),
        Command::Repair(args) => load(cli.config).and_then(|config| join::repair(&config, args)),
    };
    outcome.unwrap_or_else(|error| {
        // The last word, also when nobody can hear it.
        let _ = writeln!(std::io::stderr(), "gpuaas-agent: {error}");
        ExitCode::FAILURE
    })
}

fn load(path: Option<PathBuf>) -> Result<Config, ProgramError> {
    Ok(Config::load(path.as_deref())?)
}

fn print_line(line: &str) -> Result<(), ProgramError> {
    writeln!(std::io::stdout(), "{line}").map_err(ProgramError::io("standard output"))
}

/// One thread for the network side, a few for what may block.
fn runtime() -> Result<tokio::runtime::Runtime, ProgramError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .map_err(ProgramError::io("the event loop cannot be made"))
}

/// What the machine says about itself.
fn facts(roots: &Roots, boot_id: String) -> Facts {
    let line = |path: PathBuf| {
        let text = crate::atomic::read(&path, 4096).ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    Facts {
        hostname: line(roots.proc.join("sys/kernel/hostname")),
        agent_version: VERSION.to_owned(),
        boot_id,
        machine_id: line(roots.root.join("etc/machine-id")),
    }
}

fn ambient() -> Ambient {
    Ambient::system()
}
