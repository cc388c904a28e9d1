//! A private PostgreSQL for gates and tests: started when first needed, thrown away at the end.
//!
//! `cargo xtask test` names its server to the tests in [`SOCKET_DIR`]; the gates use that one when it is named, so
//! that a test of theirs which is killed leaves no server behind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow};
use pg::Connect;
use pg::builtin::{BuiltinConfig, BuiltinServer, SUPERUSER};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const START_LIMIT: Duration = Duration::from_secs(60);
/// The gates work one after the other.
const GATE_CONNECTIONS: u32 = 20;
/// One gate's work on its database; a migration that hangs on a lock must not hang the gate.
const WORK_LIMIT: Duration = Duration::from_secs(300);

/// The variable with the socket directory of a running server for tests.
pub const SOCKET_DIR: &str = "GPUAAS_TEST_PG";

pub struct Server {
    runtime: Runtime,
    socket_dir: PathBuf,
    /// The process and its directory, when they are ours. The directory goes after the process has ended.
    ours: Option<(BuiltinServer, TempDir)>,
}

impl Server {
    pub fn start(max_connections: u32) -> anyhow::Result<Server> {
        let dir = tempfile::Builder::new().prefix("gpuaas-pg-").tempdir().context("make a directory")?;
        // When we are root the server runs as somebody else, who must be able to pass through.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))?;
        let runtime = runtime()?;
        let config = BuiltinConfig {
            data_dir: dir.path().join("data"),
            bin_dir: None,
            run_as: None,
            durable: false,
            start_timeout: START_LIMIT,
            max_connections,
        };
        let builtin = runtime.block_on(BuiltinServer::start(config)).context("start a private PostgreSQL")?;
        Ok(Server { runtime, socket_dir: builtin.socket_dir().to_owned(), ours: Some((builtin, dir)) })
    }

    /// The server that is named in the environment, or one of our own.
    fn for_gates() -> anyhow::Result<Server> {
        match std::env::var_os(SOCKET_DIR) {
            Some(dir) => Ok(Server { runtime: runtime()?, socket_dir: dir.into(), ours: None }),
            None => Server::start(GATE_CONNECTIONS),
        }
    }

    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub fn connect(&self, database: &str) -> Connect {
        Connect::builtin(&self.socket_dir, 5432, SUPERUSER, database)
    }

    pub fn block_on<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let limited = async { tokio::time::timeout(WORK_LIMIT, work).await };
        let late = || anyhow!("the work on the database took longer than {} s", WORK_LIMIT.as_secs());
        self.runtime.block_on(limited).unwrap_or_else(|_| Err(late()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((builtin, _dir)) = self.ours.take()
            && let Err(error) = self.runtime.block_on(builtin.stop())
        {
            eprintln!("the private PostgreSQL did not stop well: {error}");
        }
    }
}

/// A share of the one server that all gates of this process use. It starts with the first use and stops with
/// the last share, so hold one around several gates.
pub struct Lease(Arc<Mutex<Option<Server>>>);

static SHARED: Mutex<Weak<Mutex<Option<Server>>>> = Mutex::new(Weak::new());

impl Lease {
    pub fn take() -> Lease {
        let mut shared = lock(&SHARED);
        let server = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&server);
        Lease(server)
    }

    pub fn with<T>(&self, work: impl FnOnce(&Server) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let mut server = lock(&self.0);
        match &*server {
            Some(server) => work(server),
            None => work(server.insert(Server::for_gates()?)),
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
