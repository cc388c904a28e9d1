//! The tasks of one node that are not over.

use kernel::ids::{NodeId, TaskId};
use pg::Connection;

pub async fn open(conn: &mut Connection, node: NodeId) -> Result<Vec<TaskId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM node_tasks WHERE node_id = $1 AND state IN ('queued', 'dispatched', 'running') ORDER BY id",
        node.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(TaskId::from).collect())
}
