//! What decides whether a node may speak.

use chrono::{DateTime, Utc};
use kernel::ids::NodeId;
use pg::Connection;

use crate::model::node::NodeState;

pub struct NodeTrustRow {
    pub state: NodeState,
    pub simulated: bool,
    pub revoked: Vec<String>,
    pub superseded: Vec<String>,
    pub renewing: Vec<String>,
    pub live_serial: Option<String>,
    pub live_made_at: Option<DateTime<Utc>>,
    pub live_used_at: Option<DateTime<Utc>>,
    pub rekey: bool,
}

/// Revoked certificates count as long as they would be valid otherwise, and a little longer.
pub async fn get(
    conn: &mut Connection,
    node: NodeId,
    now: DateTime<Utc>,
) -> Result<Option<NodeTrustRow>, sqlx::Error> {
    sqlx::query_as!(
        NodeTrustRow,
        r#"SELECT n.state AS "state: NodeState", n.simulated,
                  ARRAY(SELECT c.serial FROM node_certificates c
                        WHERE c.node_id = n.id AND c.revoked_at IS NOT NULL AND NOT c.superseded
                          AND c.not_after > $2::timestamptz - interval '1 hour') AS "revoked!",
                  ARRAY(SELECT c.serial FROM node_certificates c
                        WHERE c.node_id = n.id AND c.superseded
                          AND c.not_after > $2::timestamptz - interval '1 hour') AS "superseded!",
                  ARRAY(WITH RECURSIVE earlier (serial) AS (
                            SELECT live.renewed_from WHERE live.first_used_at IS NULL AND live.renewed_from IS NOT NULL
                            UNION
                            SELECT c.renewed_from FROM earlier JOIN node_certificates c ON c.serial = earlier.serial
                            WHERE c.node_id = n.id AND c.superseded AND c.first_used_at IS NULL
                              AND c.renewed_from IS NOT NULL)
                        SELECT serial FROM earlier) AS "renewing!: Vec<String>",
                  live.serial AS "live_serial?",
                  live.created_at AS "live_made_at?", live.first_used_at AS "live_used_at?",
                  COALESCE(live.created_at < n.rekey_since, false) AS "rekey!"
           FROM nodes n LEFT JOIN node_certificates live ON live.node_id = n.id AND live.revoked_at IS NULL
           WHERE n.id = $1"#,
        node.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await
}
