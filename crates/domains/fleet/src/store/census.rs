//! The fleet in numbers.

use chrono::{DateTime, Utc};
use kernel::ids::NodeId;
use pg::{Connection, WriteTx};

use crate::model::node::NodeState;

/// How many nodes are in each state; those that are gone do not count.
pub async fn states(conn: &mut Connection) -> Result<Vec<(NodeState, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT state AS "state: NodeState", count(*) AS "nodes!" FROM nodes WHERE state <> 'deleted'
           GROUP BY state ORDER BY state"#
    );
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.state, row.nodes)).collect())
}

/// Nodes in service whose certificate, by their own word, ends before `then`.
pub async fn certificates_ending(conn: &mut Connection, then: DateTime<Utc>) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "nodes!" FROM nodes n JOIN node_contacts c ON c.node_id = n.id
           WHERE n.state IN ('enrolling', 'active', 'offline', 'quarantined', 'draining')
             AND c.certificate_expires_at < $1"#,
        then,
    )
    .fetch_one(conn)
    .await
}

/// Nodes among them whose operators were not notified yet.
pub async fn certificates_to_notify(
    conn: &mut Connection,
    then: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<NodeId>, sqlx::Error> {
    let nodes = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n JOIN node_contacts c ON c.node_id = n.id
         WHERE n.state IN ('enrolling', 'active', 'offline', 'quarantined', 'draining')
           AND c.certificate_expires_at < $1 AND c.certificate_notified_expiry IS DISTINCT FROM c.certificate_expires_at
         ORDER BY c.certificate_expires_at LIMIT $2",
        then,
        limit,
    );
    Ok(nodes.fetch_all(conn).await?.into_iter().map(NodeId::from).collect())
}

/// Marks the certificate as notified and answers the region of the node and when it expires. None when there is
/// nothing left to notify of: another replica did, or the node renewed it.
pub async fn certificate_mark_notified(
    tx: &mut WriteTx,
    node: NodeId,
    then: DateTime<Utc>,
) -> Result<Option<(String, DateTime<Utc>)>, sqlx::Error> {
    let row = sqlx::query!(
        r#"UPDATE node_contacts c SET certificate_notified_expiry = c.certificate_expires_at FROM nodes n
           WHERE n.id = $1 AND c.node_id = n.id AND c.certificate_expires_at < $2
             AND c.certificate_notified_expiry IS DISTINCT FROM c.certificate_expires_at
           RETURNING n.region AS "region!", c.certificate_expires_at AS "ends_at!""#,
        node.uuid(),
        then,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| (row.region, row.ends_at)))
}
