//! Nodes that are to make a new key and have not: what operators are shown about it.

use kernel::{Failure, ids::NodeId};
use pg::Connection;

use crate::{
    model::{
        node::ReadinessBlocker,
        slot::{Slot, SlotState},
    },
    store::{self, certificates::KeyWait},
};

/// The agent was asked for a new key, and makes it at its next contact.
pub const KEY_PENDING: &str = "node_key_pending";
/// The agent cannot be asked for a new key.
pub const KEY_AGENT_OUTDATED: &str = "node_key_agent_outdated";

/// Agents that speak this do not read `renew_now`.
const CONTRACT_WITHOUT_RENEW_NOW: &str = "1.0";

fn blocker(wait: &KeyWait) -> ReadinessBlocker {
    let outdated = wait.contract.as_deref() == Some(CONTRACT_WITHOUT_RENEW_NOW);
    let (code, message) = if outdated {
        let text = format!(
            "Waits for a new node key after a tenancy. The agent implements contract \
             {CONTRACT_WITHOUT_RENEW_NOW}, which has no renewal on request: it creates a new key only when \
             it renews its certificate, before {}. Update the agent, or repair the \
             node with a token (`gpuaas nodes repair-token`).",
            wait.ends_at.format("%Y-%m-%dT%H:%M:%SZ")
        );
        (KEY_AGENT_OUTDATED, text)
    } else {
        let text = "Waits for a new node key after a tenancy: the agent creates it at its next contact. If \
                    the node does not reconnect, repair it with a token (`gpuaas nodes repair-token`).";
        (KEY_PENDING, text.to_owned())
    };
    ReadinessBlocker { code: code.to_owned(), subject: "node".to_owned(), message }
}

/// Why the node is not sold again yet, while it is to make a new key.
pub async fn node_key_blocker(
    conn: &mut Connection,
    node: NodeId,
) -> Result<Option<ReadinessBlocker>, Failure> {
    Ok(store::certificates::key_waits(conn, &[node]).await?.first().map(blocker))
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
        slot.blockers.extend(waits.iter().filter(|wait| wait.node_id == slot.node_id).map(blocker));
    }
    Ok(())
}
