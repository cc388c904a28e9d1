//! The built-in PostgreSQL: a private server that lives and dies with this program.
//!
//! What it is for: one command starts the product, with no database to set up. The server binaries come from
//! the machine (nothing is downloaded); the cluster, its socket and its settings are ours.
//!
//! How it works. [`BuiltinServer::start`] runs these steps, each of which may be cut short by kill -9 and is
//! then simply done again by the next start:
//!
//! 1. pick the unprivileged user (only when started as root) and create the data directory;
//! 2. take the lock on it, so that one program at a time owns it;
//! 3. find binaries, preferring the major version the cluster was made with, and refuse any other version;
//! 4. create the cluster if there is none: `initdb` into a directory of its own, then one rename;
//! 5. stop a server that an earlier, killed program left running on this cluster;
//! 6. start `postgres` on a unix socket in a directory that only its user (and root) can enter;
//! 7. hand it to a task that restarts it when it ends by itself, a bounded number of times.
//!
//! Layout of the data directory: `lock` (held while we run), `pgdata` (the cluster), `pgdata.init.*` (a cluster
//! being made; leftovers are removed), `run` (the socket; a short directory under the temporary directory
//! stands in for it when the path is too long for a socket).
//!
//! What it promises: no TCP port; never root; durable settings unless told otherwise; no wait without a limit.
//! What it does not: the server cannot be made to die at the very instant this program is killed. It goes on
//! until the next start, which stops it first.

mod cluster;
mod discover;
mod error;
mod exec;
mod log;
mod settings;
mod socket;
mod stale;
mod supervise;
mod user;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use error::BuiltinError;

/// The superuser of the private cluster. Reaching the socket is what authenticates it.
pub const SUPERUSER: &str = "gpuaas_super";

/// The number in the socket file's name. Nothing listens on a TCP port of this or any number.
const PORT: u16 = 5432;

/// How the built-in server is run.
#[derive(Debug, Clone)]
pub struct BuiltinConfig {
    /// Where everything is kept. Created when missing.
    pub data_dir: PathBuf,
    /// The directory of `postgres` and `initdb`; searched for when absent.
    pub bin_dir: Option<PathBuf>,
    /// The user to run the server as when this program is root; `postgres` when absent.
    pub run_as: Option<String>,
    /// False only for tests: gives up safety against power loss for speed.
    pub durable: bool,
    /// How long one start may take, recovery of the cluster included.
    pub start_timeout: Duration,
    /// Client connections the server accepts.
    pub max_connections: u32,
}

/// What the supervisor sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// The server answers.
    Running,
    /// The server ended by itself and is being started again.
    Restarting,
    /// The supervisor gave up, and why. Only a new start of the program helps.
    Failed(String),
}

/// A running built-in server. Dropping it asks the server to stop; [`BuiltinServer::stop`] also waits for it.
#[derive(Debug)]
pub struct BuiltinServer {
    socket_dir: PathBuf,
    state: watch::Receiver<ServerState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), BuiltinError>>,
}

impl BuiltinServer {
    /// Starts the server, creating the cluster when there is none, and returns when it answers.
    pub async fn start(config: BuiltinConfig) -> Result<BuiltinServer, BuiltinError> {
        let user = user::RunAs::resolve(config.run_as.as_deref())?;
        let root = cluster::prepare_root(&config.data_dir, &user)?;
        let lock = cluster::lock(&root)?;
        let recorded = cluster::recorded_major(&root)?;
        let binaries = discover::find(config.bin_dir.as_deref(), recorded, &user).await?;
        cluster::check_reach(&root, &user, &binaries).await?;
        let pgdata = cluster::ensure(&root, recorded, &user, &binaries, config.durable).await?;
        let socket_dir = socket::prepare(&root, &user)?;
        let args = settings::arguments(&config, &pgdata, &socket_dir, settings::machine_memory_bytes());
        let plan = supervise::Plan {
            program: binaries.program("postgres"),
            args,
            user,
            pgdata,
            socket_dir: socket_dir.clone(),
            start_timeout: config.start_timeout,
            lock,
        };
        let (stop, mut stop_seen) = watch::channel(false);
        let server = supervise::bring_up(&plan, &mut stop_seen).await?;
        tracing::info!(version = binaries.major, socket_dir = %socket_dir.display(), "built-in PostgreSQL is up");
        let (state_out, state) = watch::channel(ServerState::Running);
        let task = tokio::spawn(supervise::supervise(plan, server, state_out, stop_seen));
        Ok(BuiltinServer { socket_dir, state, stop, task })
    }

    /// The directory of the unix socket: what a client gives as its host.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// The number in the socket file's name: what a client gives as its port.
    pub fn port(&self) -> u16 {
        PORT
    }

    /// Stops the server: a fast shutdown, then harder means when it does not end in time.
    pub async fn stop(self) -> Result<(), BuiltinError> {
        // The task may already have ended; then there is nobody to tell and its result says how.
        let _ = self.stop.send(true);
        self.task.await.map_err(|source| BuiltinError::SupervisorDied { source })?
    }

    /// Follows the state of the server. The channel closes when the server has been stopped.
    pub fn watch(&self) -> watch::Receiver<ServerState> {
        self.state.clone()
    }
}
