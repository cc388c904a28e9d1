//! Nodes that are to make a new key and have not: what operators are shown about it.

use kernel::{Failure, ids::NodeId};
use pg::Connection;

use crate::{
    model::{
        node::ReadinessBlocker,
        slot::{Slot, SlotState},
    },
    store,
};

/// The agent was asked for a new key, and makes it at its next contact.
pub const KEY_PENDING: &str = "node_key_pending";

fn blocker() -> ReadinessBlocker {
    let message = "Waits for a new node key after a tenancy: the agent creates it at its next contact. If the node \
                   does not reconnect, repair it with a token (`gpuaas nodes repair-token`).";
    ReadinessBlocker { code: KEY_PENDING.to_owned(), subject: "node".to_owned(), message: message.to_owned() }
}

/// Why the node is not sold again yet, while it is to make a new key.
pub async fn node_key_blocker(
    conn: &mut Connection,
    node: NodeId,
) -> Result<Option<ReadinessBlocker>, Failure> {
    Ok(store::certificates::key_waits(conn, &[node]).await?.first().map(|_| blocker()))
}

/// Adds it to slots that are cleaned meanwhile.
pub async fn slots_explain(conn: &mut Connection, slots: &mut [Slot]) -> Result<(), Failure> {
    let cleaned = |slot: &&mut Slot| slot.state == SlotState::Cleaning;
    let nodes: Vec<NodeId> = slots.iter_mut().filter(cleaned).map(|slot| slot.node_id).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let waits = store::certificates::key_waits(conn, &nodes).await?;
    for slot in slots.iter_mut().filter(cleaned) {
        slot.blockers.extend(waits.contains(&slot.node_id).then(blocker));
    }
    Ok(())
}
