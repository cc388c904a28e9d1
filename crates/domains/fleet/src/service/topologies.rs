//! What the last discovery of a node found.

use kernel::{Failure, ids::NodeId};
use pg::ReadTx;

use super::found;
use crate::{model::topology::NodeTopology, store};

pub async fn node_topology(tx: &mut ReadTx, node: NodeId) -> Result<NodeTopology, Failure> {
    found(store::nodes::get(tx.conn(), node).await?, "node")?;
    Ok(found(store::topologies::get(tx.conn(), node).await?, "topology")?)
}
