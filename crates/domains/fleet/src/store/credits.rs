//! Findings with the action `credit`.

use chrono::{DateTime, Utc};
use kernel::ids::{FindingId, NodeId, SlotId};
use pg::Connection;
use uuid::Uuid;

use crate::model::credit_finding::CreditFinding;

struct Row {
    id: Uuid,
    node_id: Uuid,
    slot_id: Option<Uuid>,
    code: String,
    first_seen_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
}

impl From<Row> for CreditFinding {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            node: row.node_id.into(),
            slot: row.slot_id.map(SlotId::from),
            code: row.code,
            since: row.first_seen_at,
            ended_at: row.ended_at,
        }
    }
}

pub async fn lock(conn: &mut Connection, id: FindingId) -> Result<Option<CreditFinding>, sqlx::Error> {
    // A statement of its own: what is read after the wait is what is true then.
    sqlx::query_scalar!("SELECT id FROM health_findings WHERE id = $1 FOR SHARE", id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    let row = sqlx::query_as!(
        Row,
        "SELECT id, node_id, slot_id, code, first_seen_at, CASE WHEN state = 'resolved' THEN updated_at END AS ended_at
         FROM health_findings WHERE id = $1 AND action = 'credit'",
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(CreditFinding::from))
}

pub async fn open_of_node(conn: &mut Connection, node: NodeId) -> Result<Vec<CreditFinding>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, slot_id, code, first_seen_at, NULL::timestamptz AS "ended_at?"
           FROM health_findings WHERE node_id = $1 AND action = 'credit' AND state <> 'resolved' ORDER BY id"#,
        node.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(CreditFinding::from).collect())
}
