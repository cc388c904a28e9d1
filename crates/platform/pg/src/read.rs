//! Reading within a scope.

use crate::{Connection, pool::Object};

/// A connection that carries the scope's tenant. It can only be had through a `Permit`.
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
