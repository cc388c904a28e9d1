//! What is on a node. Another domain places it there, and tells here what it is.

use async_trait::async_trait;
use kernel::{Code, Failure, Problem, ids::NodeId};
use pg::{Connection, WriteTx};

use crate::{Fleet, model::occupant::NodeOccupants, store};

/// Whoever places machines on nodes.
#[async_trait]
pub trait Occupancy: Send + Sync {
    /// The allocations on `node` that are not over, at most `limit` of them by name.
    async fn occupants(
        &self,
        conn: &mut Connection,
        node: NodeId,
        limit: i64,
    ) -> Result<NodeOccupants, Failure>;
}

/// Refuses while anybody's work is on a node, and names whose.
pub(super) async fn check_unoccupied(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    let occupied = store::slot_steps::occupied(tx.conn(), node).await?;
    if occupied.is_empty() {
        return Ok(());
    }
    let occupants = fleet.occupants(tx.conn(), node).await?;
    let text = match occupants.total {
        0 => "Slots of the node are still in use.".to_owned(),
        1 => "One allocation is still on the node.".to_owned(),
        total => format!("{total} allocations are still on the node."),
    };
    let slots: Vec<String> = occupied.iter().map(ToString::to_string).collect();
    Err(Problem::new(Code::InUse, text)
        .detail("slots", slots)
        .detail("allocations_total", occupants.total)
        .detail("allocations", serde_json::to_value(&occupants.items)?)
        .suggest(
            "Ask the owners of its allocations to release them, or release them with `gpuaas platform allocations \
             force-release`; settle slots whose cleanup failed.",
        )
        .into())
}
