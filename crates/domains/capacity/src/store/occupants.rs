//! The allocations on one node.

use chrono::{DateTime, Utc};
use kernel::ids::NodeId;
use pg::Connection;
use uuid::Uuid;

use crate::model::allocation::AllocationState;

pub struct OnNode {
    pub id: Uuid,
    pub name: String,
    pub state: AllocationState,
    pub state_changed_at: DateTime<Utc>,
    pub org_id: Uuid,
    pub project_id: Uuid,
    pub creator_id: Uuid,
}

/// How many there are, and the oldest of them.
pub async fn on_node(
    conn: &mut Connection,
    node: NodeId,
    limit: i64,
) -> Result<(i64, Vec<OnNode>), sqlx::Error> {
    let total = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM allocations WHERE node_id = $1 AND state NOT IN ('released', 'failed')"#,
        node.uuid(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let found = sqlx::query_as!(
        OnNode,
        r#"SELECT id, name, state AS "state: AllocationState", state_changed_at, org_id, project_id, creator_id
           FROM allocations WHERE node_id = $1 AND state NOT IN ('released', 'failed') ORDER BY id LIMIT $2"#,
        node.uuid(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok((total, found))
}
