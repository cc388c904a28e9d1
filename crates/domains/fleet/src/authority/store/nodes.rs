//! How far nodes have followed a change of trust. Only enrolled nodes in service count, heard of or not.

use pg::Connection;
use uuid::Uuid;

pub async fn total(conn: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM nodes
           WHERE enrolled_at IS NOT NULL AND state IN ('enrolling', 'active', 'offline', 'quarantined', 'draining')"#
    )
    .fetch_one(conn)
    .await
}

/// For each authority, how many nodes believe it.
pub async fn by_authority(conn: &mut Connection) -> Result<Vec<(Uuid, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT authority_id AS "authority_id!", count(DISTINCT n.id) AS "count!"
           FROM nodes n JOIN node_contacts c ON c.node_id = n.id, unnest(c.authority_ids) AS authority_id
           WHERE n.enrolled_at IS NOT NULL AND n.state IN ('enrolling', 'active', 'offline', 'quarantined', 'draining')
           GROUP BY authority_id"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.authority_id, row.count)).collect())
}

/// For each serial, how many nodes have that list.
pub async fn by_serial(conn: &mut Connection) -> Result<Vec<(i64, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.keyset_serial, count(*) AS "count!"
           FROM nodes n JOIN node_contacts c ON c.node_id = n.id
           WHERE n.enrolled_at IS NOT NULL AND n.state IN ('enrolling', 'active', 'offline', 'quarantined', 'draining')
           GROUP BY c.keyset_serial"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.keyset_serial, row.count)).collect())
}
