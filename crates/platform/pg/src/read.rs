//! Reading within a scope.

use crate::{Connection, Permit, pool::Object};

/// A connection that carries the scope's tenant and cannot write: Postgres refuses it. It can only be had
/// through a `Permit`.
pub struct ReadTx {
    object: Object,
    permit: Permit,
}

impl ReadTx {
    pub(crate) const fn new(object: Object, permit: Permit) -> Self {
        Self { object, permit }
    }

    pub fn conn(&mut self) -> &mut Connection {
        &mut self.object.conn
    }

    /// For whoever gives the connection back while waiting: the same scope is opened again with it.
    pub const fn permit(&self) -> &Permit {
        &self.permit
    }
}

/// A connection for bookkeeping that nobody audits. See [`crate::Db::upkeep`].
pub struct Upkeep {
    object: Object,
}

impl Upkeep {
    pub(crate) const fn new(object: Object) -> Self {
        Self { object }
    }

    pub fn conn(&mut self) -> &mut Connection {
        &mut self.object.conn
    }
}
