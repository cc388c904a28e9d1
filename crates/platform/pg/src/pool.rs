//! Connections that remember which tenant they carry.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use sqlx::{Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{Error, permit::Permit};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenant {
    org: Option<Uuid>,
    principal: Option<Uuid>,
}

impl Tenant {
    pub fn from_permit(permit: &Permit) -> Self {
        Self { org: permit.scope.org().map(|org| org.uuid()), principal: permit.actor.id }
    }
}

pub(crate) struct PooledConnection {
    pub conn: PgConnection,
    /// What the session settings are known to hold; unknown while a statement that sets them is under way.
    tenant: Option<Tenant>,
    /// Whether single statements may write: only while it is lent for upkeep.
    writable: bool,
    /// A statement failed in a way that leaves the connection doubtful, or its future was dropped.
    pub doubtful: bool,
    /// The suspicion under which it last answered.
    answered_in: u64,
}

impl PooledConnection {
    pub async fn carry(&mut self, tenant: Tenant) -> Result<(), Error> {
        if self.tenant == Some(tenant) {
            return Ok(());
        }
        self.tenant = None;
        let text = |id: Option<Uuid>| id.map(|id| id.to_string()).unwrap_or_default();
        sqlx::query("SELECT set_config('app.org_id', $1, false), set_config('app.principal_id', $2, false)")
            .bind(text(tenant.org))
            .bind(text(tenant.principal))
            .execute(&mut self.conn)
            .await
            .map_err(Error::from_sqlx)?;
        self.tenant = Some(tenant);
        Ok(())
    }

    pub async fn set_writable(&mut self, writable: bool) -> Result<(), Error> {
        if self.writable != writable {
            let statement = if writable {
                "SET default_transaction_read_only = off"
            } else {
                "SET default_transaction_read_only = on"
            };
            self.conn.execute(statement).await.map_err(Error::from_sqlx)?;
            self.writable = writable;
        }
        Ok(())
    }
}

pub(crate) struct Manager {
    options: PgConnectOptions,
    /// Counts how often the server was suspected to have gone away: connections from before prove themselves.
    suspicion: Arc<AtomicU64>,
}

/// An idle connection proves itself before it is lent again.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

impl managed::Manager for Manager {
    type Type = PooledConnection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<PooledConnection, sqlx::Error> {
        let answered_in = self.suspicion.load(Ordering::Acquire);
        // In a box: else everybody who waits for a connection keeps room for making one.
        let conn = Box::pin(PgConnection::connect_with(&self.options)).await?;
        Ok(PooledConnection { conn, tenant: None, writable: false, doubtful: false, answered_in })
    }

    async fn recycle(&self, pooled: &mut PooledConnection, metrics: &Metrics) -> RecycleResult<sqlx::Error> {
        if pooled.doubtful {
            return Err(RecycleError::message("the connection was left in an unknown state"));
        }
        // A server that went away is noticed here when the connection idled or somebody else met a broken one.
        let suspicion = self.suspicion.load(Ordering::Acquire);
        if pooled.answered_in != suspicion || metrics.last_used() > TRUSTED_FOR {
            Box::pin(pooled.conn.ping()).await?;
            pooled.answered_in = suspicion;
        }
        Ok(())
    }
}

pub(crate) type Object = managed::Object<Manager>;

#[derive(Clone)]
pub(crate) struct Pool {
    pool: managed::Pool<Manager>,
    suspicion: Arc<AtomicU64>,
}

const WAIT_FOR_CONNECTION: Duration = Duration::from_secs(5);

impl Pool {
    pub fn new(options: PgConnectOptions, size: usize) -> Self {
        let suspicion = Arc::new(AtomicU64::new(0));
        let pool = managed::Pool::builder(Manager { options, suspicion: suspicion.clone() })
            .max_size(size)
            .wait_timeout(Some(WAIT_FOR_CONNECTION))
            .create_timeout(Some(WAIT_FOR_CONNECTION))
            .recycle_timeout(Some(WAIT_FOR_CONNECTION))
            .runtime(deadpool::Runtime::Tokio1)
            .build();
        match pool {
            Ok(pool) => Self { pool, suspicion },
            // `build` fails only when timeouts are set without a runtime.
            Err(error) => unreachable!("{error}"),
        }
    }

    pub async fn get(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| match error {
            managed::PoolError::Backend(error) => Error::Unreachable(error),
            _ => Error::Busy,
        })
    }

    /// Somebody met a broken connection: the others prove themselves before they are lent again.
    pub fn suspect(&self) {
        self.suspicion.fetch_add(1, Ordering::AcqRel);
    }

    /// The most connections it lends at once.
    pub fn limit(&self) -> usize {
        self.pool.status().max_size
    }

    /// (in use, waiting)
    pub fn usage(&self) -> (usize, usize) {
        let status = self.pool.status();
        (status.size.saturating_sub(status.available), status.waiting)
    }

    pub fn close(&self) {
        self.pool.close();
    }
}

/// Ends a transaction whose owner went away, without making anybody wait for it: the connection goes back
/// to the pool when the rollback worked and is closed when it did not.
pub(crate) fn roll_back_in_background(mut object: Object) {
    object.doubtful = true;
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        let rollback = object.conn.execute("ROLLBACK");
        if let Ok(Ok(_)) = tokio::time::timeout(WAIT_FOR_CONNECTION, rollback).await {
            object.doubtful = false;
        }
    });
}
