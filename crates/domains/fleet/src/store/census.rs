//! The fleet in numbers.

use chrono::{DateTime, Utc};
use pg::Connection;

/// How many nodes are in each state; those that are gone do not count.
pub async fn states(conn: &mut Connection) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT state, count(*) AS "nodes!" FROM nodes WHERE state <> 'deleted' GROUP BY state ORDER BY state"#
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
