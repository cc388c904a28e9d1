//! What decides whether a node may speak.

use chrono::{DateTime, Utc};
use kernel::ids::NodeId;
use pg::Connection;

pub struct StandingRow {
    pub state: String,
    pub simulated: bool,
    pub revoked: Vec<String>,
}

/// Revoked certificates count as long as they would be valid otherwise, and a little longer.
pub async fn get(
    conn: &mut Connection,
    node: NodeId,
    now: DateTime<Utc>,
) -> Result<Option<StandingRow>, sqlx::Error> {
    sqlx::query_as!(
        StandingRow,
        r#"SELECT n.state, n.simulated,
                  ARRAY(SELECT c.serial FROM node_certificates c
                        WHERE c.node_id = n.id AND c.revoked_at IS NOT NULL
                          AND c.not_after > $2::timestamptz - interval '1 hour') AS "revoked!"
           FROM nodes n WHERE n.id = $1"#,
        node.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await
}
