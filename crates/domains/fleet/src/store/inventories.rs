//! What nodes say is in use on them, and what slots are made of: for comparing with what should be.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, SlotId};
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    inventory::{NodeInventory, SlotFacts},
    node::NodeState,
    slot::{SlotKind, SlotState},
};

pub async fn nodes(
    conn: &mut Connection,
    after: Uuid,
    limit: i64,
) -> Result<Vec<NodeInventory>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT n.id, n.state AS "state: NodeState", c.last_seen_at AS "last_seen_at?", c.inventory AS "inventory?"
           FROM nodes n LEFT JOIN node_contacts c ON c.node_id = n.id
           WHERE n.id > $1 AND n.state <> 'deleted' ORDER BY n.id LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let read = |value: Option<serde_json::Value>| {
        value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    };
    let inventory = |row: (Uuid, NodeState, _, Option<serde_json::Value>)| NodeInventory {
        node_id: NodeId::from(row.0),
        state: row.1,
        last_seen_at: row.2,
        inventory: read(row.3),
    };
    Ok(rows.into_iter().map(|r| inventory((r.id, r.state, r.last_seen_at, r.inventory))).collect())
}

/// Nodes on which something may run or be placed, and which have not reported since then; at most `limit`.
pub async fn unheard(
    conn: &mut Connection,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<NodeId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n LEFT JOIN node_contacts c ON c.node_id = n.id
         WHERE n.state IN ('active', 'offline', 'quarantined', 'draining') AND n.cordon_reason IS NULL
           AND (c.last_seen_at IS NULL OR c.last_seen_at < $1)
         ORDER BY n.id LIMIT $2",
        since,
        limit,
    );
    Ok(ids.fetch_all(conn).await?.into_iter().map(NodeId::from).collect())
}

/// Nodes on which something may run or be placed, and no report of which was compared with the records since then; at
/// most `limit`. Those that are cordoned only when they are asked for.
pub async fn uncompared(
    conn: &mut Connection,
    since: DateTime<Utc>,
    with_cordoned: bool,
    limit: i64,
) -> Result<Vec<NodeId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n
         WHERE n.state IN ('active', 'offline', 'quarantined', 'draining') AND ($2 OR n.cordon_reason IS NULL)
           AND coalesce(n.compared_at < $1, true)
         ORDER BY n.id LIMIT $3",
        since,
        with_cordoned,
        limit,
    );
    Ok(ids.fetch_all(conn).await?.into_iter().map(NodeId::from).collect())
}

/// Their reports were compared with the records. Kept once for each restore, and only of reports from after it.
pub async fn compared(conn: &mut Connection, ids: &[NodeId], now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "UPDATE nodes n SET compared_at = $2
         FROM node_contacts c, (SELECT coalesce(restored_at, last_restored_at) AS at FROM installation) AS restored
         WHERE n.id = ANY ($1) AND c.node_id = n.id AND c.last_seen_at >= restored.at
           AND coalesce(n.compared_at < restored.at, true)",
        &ids,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Keeps the mode of the installation as it is until the transaction ends.
pub async fn mode_lock(conn: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT true AS "held!" FROM installation FOR SHARE"#).fetch_one(conn).await?;
    Ok(())
}

/// Whether the node was left out when an operator resumed after a restore, and was not compared since.
pub async fn was_left_out(conn: &mut Connection, id: NodeId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM nodes n, installation i
               WHERE n.id = $1 AND i.mode = 'normal' AND n.created_at < i.last_restored_at
                 AND n.state IN ('active', 'offline', 'quarantined', 'draining')
                 AND coalesce(n.compared_at < i.last_restored_at, true)) AS "left_out!""#,
        id.uuid(),
    )
    .fetch_one(conn)
    .await
}

pub async fn slots(conn: &mut Connection, ids: &[SlotId]) -> Result<Vec<SlotFacts>, sqlx::Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    sqlx::query_as!(
        SlotFacts,
        r#"SELECT id, node_id, slot_index, kind AS "kind: SlotKind", state AS "state: SlotState", pci_address, nvme_device,
             fabric_vf, numa_node, cleanup_reason
         FROM node_resource_slots WHERE id = ANY ($1) ORDER BY node_id, slot_index"#,
        &ids,
    )
    .fetch_all(conn)
    .await
}

/// Those of them that are made of software. By a function, because requests of tenants cannot read nodes.
pub async fn simulated(conn: &mut Connection, nodes: &[NodeId]) -> Result<Vec<NodeId>, sqlx::Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.uuid()).collect();
    let found = sqlx::query_scalar!(r#"SELECT s AS "id!" FROM fleet_simulated($1) s"#, &nodes);
    Ok(found.fetch_all(conn).await?.into_iter().map(NodeId::from).collect())
}
