//! A private PostgreSQL for gates and tests: started when first needed, thrown away at the end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
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

pub struct Server {
    runtime: Runtime,
    builtin: Option<BuiltinServer>,
    /// Removed after the server has stopped, because it is dropped after it.
    _dir: TempDir,
}

impl Server {
    pub fn start(max_connections: u32) -> anyhow::Result<Server> {
        let dir = tempfile::Builder::new().prefix("gpuaas-pg-").tempdir().context("make a directory")?;
        // When we are root the server runs as somebody else, who must be able to pass through.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let config = BuiltinConfig {
            data_dir: dir.path().join("data"),
            bin_dir: None,
            run_as: None,
            durable: false,
            start_timeout: START_LIMIT,
            max_connections,
        };
        let builtin = runtime.block_on(BuiltinServer::start(config)).context("start a private PostgreSQL")?;
        Ok(Server { runtime, builtin: Some(builtin), _dir: dir })
    }

    pub fn socket_dir(&self) -> anyhow::Result<&Path> {
        self.builtin
            .as_ref()
            .map(BuiltinServer::socket_dir)
            .context("the private PostgreSQL has been stopped")
    }

    pub fn connect(&self, database: &str) -> anyhow::Result<Connect> {
        Ok(Connect::builtin(self.socket_dir()?, 5432, SUPERUSER, database))
    }

    pub fn block_on<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let limited = async { tokio::time::timeout(WORK_LIMIT, work).await };
        let late = || anyhow!("the work on the database took longer than {} s", WORK_LIMIT.as_secs());
        self.runtime.block_on(limited).unwrap_or_else(|_| Err(late()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(builtin) = self.builtin.take()
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
            None => work(server.insert(Server::start(GATE_CONNECTIONS)?)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
