//! Reading within a scope.

use crate::{Connection, pool::Object};

/// A connection that carries the scope's tenant and cannot write: Postgres refuses it. It can only be had
/// through a `Permit`.
pub struct ReadTx {
    object: Object,
}

impl ReadTx {
    pub(crate) const fn new(object: Object) -> Self {
        Self { object }
    }

    pub fn conn(&mut self) -> &mut Connection {
        &mut self.object.conn
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
