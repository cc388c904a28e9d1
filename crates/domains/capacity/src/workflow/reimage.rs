//! Installing a machine anew between tenants.

use async_trait::async_trait;
use kernel::{Failure, ids::NodeId};

/// How far an installation has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reimaging {
    UnderWay,
    Done,
    Failed(String),
}

/// Whoever can install a machine anew. Both calls bear repetition: the key names the one installation that is meant.
#[async_trait]
pub trait Reimager: Send + Sync {
    async fn begin(&self, node: NodeId, key: &str) -> Result<(), Failure>;
    async fn look(&self, node: NodeId, key: &str) -> Result<Reimaging, Failure>;
}
