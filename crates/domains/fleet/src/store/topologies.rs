//! What the last discovery of each node found.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId};
use pg::Connection;
use serde_json::Value;

use crate::model::topology::NodeTopology;

pub async fn get(conn: &mut Connection, node: NodeId) -> Result<Option<NodeTopology>, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT node_id, task_id, topology, discovered_at FROM node_topologies WHERE node_id = $1",
        node.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| NodeTopology {
        node_id: row.node_id.into(),
        task_id: row.task_id.into(),
        topology: row.topology,
        discovered_at: row.discovered_at,
    }))
}

pub async fn put(
    conn: &mut Connection,
    node: NodeId,
    task: TaskId,
    topology: &Value,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_topologies (node_id, task_id, topology, discovered_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (node_id) DO UPDATE SET task_id = excluded.task_id, topology = excluded.topology,
             discovered_at = excluded.discovered_at",
        node.uuid(),
        task.uuid(),
        topology,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
