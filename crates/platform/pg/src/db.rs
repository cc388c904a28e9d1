//! The database as the rest of the program holds it: two pools and the hub of cache invalidations.

use std::sync::{Arc, RwLock};

use kernel::Ambient;

use crate::{
    Begin, Connect, Error, IdempotentRequest, Permit, ReadTx, Roles, Scope, Upkeep, WriteTx,
    pool::{Pool, Tenant},
};

type Listener = Box<dyn Fn(&str) + Send + Sync>;

struct Inner {
    connect: Connect,
    app: Pool,
    system: Pool,
    ambient: Ambient,
    listeners: RwLock<Vec<Listener>>,
}

/// Cheap to clone. Making one connects to nothing.
#[derive(Clone)]
pub struct Db(Arc<Inner>);

/// Drops everything cached; sent when notifications may have been missed.
pub(crate) const INVALIDATE_ALL: &str = "*";

impl Db {
    pub fn new(
        connect: Connect,
        app_connections: usize,
        system_connections: usize,
        ambient: Ambient,
    ) -> Self {
        Self(Arc::new(Inner {
            app: Pool::new(connect.options(Roles::App), app_connections),
            system: Pool::new(connect.options(Roles::System), system_connections),
            connect,
            ambient,
            listeners: RwLock::default(),
        }))
    }

    pub fn ambient(&self) -> &Ambient {
        &self.0.ambient
    }

    pub fn connect(&self) -> &Connect {
        &self.0.connect
    }

    pub async fn read(&self, permit: &Permit) -> Result<ReadTx, Error> {
        Ok(ReadTx::new(self.checkout(permit).await?, permit.clone()))
    }

    /// A connection of the system role for the machinery's own bookkeeping: queues, counters, clean-up. What
    /// it writes is not audited, so it is not for anything a person or a tenant did.
    pub async fn upkeep(&self, reason: &'static str) -> Result<Upkeep, Error> {
        tracing::trace!(reason, "upkeep");
        let mut object = self.0.system.get().await?;
        object.doubtful = true;
        object.set_writable(true).await?;
        object.doubtful = false;
        Ok(Upkeep::new(object))
    }

    /// Opens a write transaction for `permit` that will be audited as `action`.
    pub async fn write(&self, permit: Permit, action: &'static str) -> Result<WriteTx, Error> {
        match self.write_once(permit, action, None).await? {
            Begin::New(tx) => Ok(*tx),
            // Without an idempotency key there is no response to replay and no mismatch.
            Begin::Replay(_) | Begin::KeyReused => Err(Error::Busy),
        }
    }

    /// The same, reserving an idempotency key first.
    pub async fn write_once(
        &self,
        permit: Permit,
        action: &'static str,
        idempotency: Option<IdempotentRequest>,
    ) -> Result<Begin, Error> {
        let object = self.checkout(&permit).await?;
        WriteTx::begin(self.clone(), object, permit, action, idempotency).await
    }

    async fn checkout(&self, permit: &Permit) -> Result<crate::pool::Object, Error> {
        let platform = permit.scope == Scope::Platform;
        let mut object = if platform { self.0.system.get().await? } else { self.0.app.get().await? };
        // Until the settings are confirmed, a dropped future must not hand the connection to anybody else.
        object.doubtful = true;
        object.set_writable(false).await?;
        if !platform {
            object.carry(Tenant::from_permit(permit)).await?;
        }
        object.doubtful = false;
        Ok(object)
    }

    /// Calls `listener` with every key that a committed transaction invalidated, on whichever replica it
    /// ran: before `commit` returns here, and by notification elsewhere. `*` means everything.
    pub fn on_invalidate(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.0.listeners.write().unwrap_or_else(|e| e.into_inner()).push(Box::new(listener));
    }

    pub(crate) fn invalidate(&self, key: &str) {
        for listener in self.0.listeners.read().unwrap_or_else(|e| e.into_inner()).iter() {
            listener(key);
        }
    }

    /// How many connections of the system role there are. Whoever holds one and needs another must leave room: a worker
    /// that takes them all at once waits for itself.
    pub fn system_connections(&self) -> usize {
        self.0.system.limit()
    }

    /// (in use, waiting) of the request pool and of the system pool.
    pub fn pool_usage(&self) -> [(&'static str, usize, usize); 2] {
        let (app, system) = (self.0.app.usage(), self.0.system.usage());
        [("app", app.0, app.1), ("system", system.0, system.1)]
    }

    /// Answers when both roles can be reached.
    pub async fn ping(&self) -> Result<(), Error> {
        for pool in [&self.0.app, &self.0.system] {
            let mut object = pool.get().await?;
            if let Err(error) = sqlx::Connection::ping(&mut object.conn).await {
                object.doubtful = true;
                self.suspect();
                return Err(Error::Unreachable(error));
            }
        }
        Ok(())
    }

    /// To be called by whoever saw a statement fail because the connection did. A restarted server leaves
    /// broken connections in the pools; they are found out before they are lent again.
    pub fn suspect(&self) {
        self.0.app.suspect();
        self.0.system.suspect();
    }

    pub fn close(&self) {
        self.0.app.close();
        self.0.system.close();
    }
}
