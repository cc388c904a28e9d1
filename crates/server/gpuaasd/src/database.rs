//! The database that the configuration asks for: the built-in server, or an external one.

use std::time::Duration;

use kernel::Ambient;
use pg::{
    Connect, Db,
    builtin::{BuiltinConfig, BuiltinServer, SUPERUSER, ServerState},
};
use telemetry::Probe;

use crate::config;

const DATABASE: &str = "gpuaas";
const START_TIMEOUT: Duration = Duration::from_secs(120);
const PING_EVERY: Duration = Duration::from_secs(1);

pub struct Database {
    pub db: Db,
    builtin: Option<BuiltinServer>,
}

/// Starts or reaches the server, prepares roles and schema, and opens the pools.
pub async fn open(config: &config::Config, ambient: Ambient, probe: &Probe) -> anyhow::Result<Database> {
    let database = &config.database;
    let (connect, builtin) = match &database.url {
        Some(url) => {
            let connect = Connect::external(url.expose())
                .map_err(|_| anyhow::anyhow!("database.url is not a Postgres URL"))?;
            (connect, None)
        }
        None => {
            probe.warming("starting the built-in PostgreSQL");
            let server = BuiltinServer::start(BuiltinConfig {
                data_dir: config.server.data_dir.join("postgres"),
                bin_dir: database.bin_dir.clone(),
                run_as: database.run_as.clone(),
                durable: true,
                start_timeout: START_TIMEOUT,
                max_connections: u32::try_from(database.app_connections + database.system_connections + 20)?,
            })
            .await?;
            let connect = |name| Connect::builtin(server.socket_dir(), server.port(), SUPERUSER, name);
            pg::create_database(&connect("postgres"), DATABASE).await?;
            (connect(DATABASE), Some(server))
        }
    };
    probe.warming("migrating the schema");
    pg::bootstrap(&connect).await?;
    pg::migrate(&connect).await?;
    let db = Db::new(connect, database.app_connections, database.system_connections, ambient);
    db.ping().await?;
    probe.ready();
    Ok(Database { db, builtin })
}

impl Database {
    /// Keeps `probe` true to the state of the database, and the pool gauges current.
    pub fn watch(&self, probe: Probe) -> tokio::task::JoinHandle<()> {
        let db = self.db.clone();
        let builtin = self.builtin.as_ref().map(BuiltinServer::watch);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PING_EVERY).await;
                for (pool, in_use, waiting) in db.pool_usage() {
                    metrics::gauge!("db_pool_in_use", "pool" => pool).set(in_use as f64);
                    metrics::gauge!("db_pool_waiting", "pool" => pool).set(waiting as f64);
                }
                match db.ping().await {
                    Ok(()) => probe.ready(),
                    Err(error) => {
                        let failed = builtin.as_ref().and_then(|state| match &*state.borrow() {
                            ServerState::Failed(reason) => Some(reason.clone()),
                            _ => None,
                        });
                        probe.failing(failed.unwrap_or_else(|| error.to_string()));
                    }
                }
            }
        })
    }

    /// Closes the pools and stops the built-in server.
    pub async fn close(self) {
        self.db.close();
        if let Some(server) = self.builtin
            && let Err(error) = server.stop().await
        {
            tracing::error!(%error, "the built-in PostgreSQL did not stop cleanly");
        }
    }
}
