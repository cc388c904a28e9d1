//! What nodes say is in use on them, and what slots are made of, for whoever compares that with what should be.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{NodeId, SlotId},
};
use pg::Connection;
use uuid::Uuid;

use crate::{
    model::inventory::{NodeInventory, SlotFacts},
    store::{self, inventories as rows},
};

/// The nodes after `after`, in the order of their ids.
pub async fn node_inventories(
    conn: &mut Connection,
    after: Option<NodeId>,
    limit: i64,
) -> Result<Vec<NodeInventory>, Failure> {
    Ok(rows::nodes(conn, after.map_or(Uuid::nil(), NodeId::uuid), limit).await?)
}

/// Nodes that are not cordoned, on which something may run or be placed, and which have not reported since then; at
/// most `limit`.
pub async fn nodes_unheard(
    conn: &mut Connection,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<NodeId>, Failure> {
    Ok(rows::unheard(conn, since, limit).await?)
}

/// Nodes on which something may run or be placed, and whose reports were not compared with the records since then; at most
/// `limit`.
pub async fn nodes_uncompared(
    conn: &mut Connection,
    since: DateTime<Utc>,
    with_cordoned: bool,
    limit: i64,
) -> Result<Vec<NodeId>, Failure> {
    Ok(rows::uncompared(conn, since, with_cordoned, limit).await?)
}

/// Their reports were compared with the records; kept for those that reported since the last restore.
pub async fn nodes_compared(
    conn: &mut Connection,
    nodes: &[NodeId],
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    Ok(rows::compared(conn, nodes, now).await?)
}

/// Those of them that exist, by node and place.
pub async fn slot_facts(conn: &mut Connection, slots: &[SlotId]) -> Result<Vec<SlotFacts>, Failure> {
    Ok(rows::slots(conn, slots).await?)
}

/// Those of them that are made of software. Requests of tenants may ask.
pub async fn nodes_simulated(conn: &mut Connection, nodes: &[NodeId]) -> Result<Vec<NodeId>, Failure> {
    Ok(rows::simulated(conn, nodes).await?)
}

/// Whether a node is made of software.
pub async fn node_is_simulated(conn: &mut Connection, node: NodeId) -> Result<bool, Failure> {
    Ok(store::nodes::get(conn, node).await?.is_some_and(|node| node.simulated))
}
