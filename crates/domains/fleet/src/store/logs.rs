//! The last lines that agents said.

use chrono::{DateTime, Utc};
use kernel::ids::NodeId;
use pg::Connection;
use uuid::Uuid;

use crate::model::log::{LogEntry, LogLevel};

/// One line, ready to be kept.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: DateTime<Utc>,
    pub level: LogLevel,
    pub source: String,
    pub message: String,
}

/// Keeps the lines in their order and tells whoever follows the node.
pub async fn append(conn: &mut Connection, node: NodeId, lines: &[Line]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "WITH kept AS (
             INSERT INTO node_log_lines (node_id, at, level, source, message)
             SELECT $1, l.at, l.level, l.source, l.message
             FROM UNNEST($2::timestamptz[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
                 AS l (at, level, source, message, place)
             ORDER BY l.place RETURNING seq)
         SELECT pg_notify('gpuaas_logs', $1::uuid::text) FROM (SELECT max(seq) FROM kept) AS done",
        node.uuid(),
        &lines.iter().map(|line| line.at).collect::<Vec<_>>(),
        &lines.iter().map(|line| line.level.to_string()).collect::<Vec<_>>(),
        &lines.iter().map(|line| line.source.clone()).collect::<Vec<_>>(),
        &lines.iter().map(|line| line.message.clone()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(())
}

/// Lines after `after`, oldest first.
pub async fn after(
    conn: &mut Connection,
    node: NodeId,
    after: i64,
    limit: i64,
) -> Result<Vec<LogEntry>, sqlx::Error> {
    sqlx::query_as!(
        LogEntry,
        r#"SELECT seq, at, level AS "level: LogLevel", source, message FROM node_log_lines WHERE node_id = $1 AND seq > $2
         ORDER BY seq LIMIT $3"#,
        node.uuid(),
        after,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// The last lines, oldest first.
pub async fn last(conn: &mut Connection, node: NodeId, limit: i64) -> Result<Vec<LogEntry>, sqlx::Error> {
    let mut lines = sqlx::query_as!(
        LogEntry,
        r#"SELECT seq, at, level AS "level: LogLevel", source, message FROM node_log_lines WHERE node_id = $1 ORDER BY seq DESC LIMIT $2"#,
        node.uuid(),
        limit,
    )
    .fetch_all(conn)
    .await?;
    lines.reverse();
    Ok(lines)
}

pub async fn node_exists(conn: &mut Connection, node: NodeId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM nodes WHERE id = $1) AS "is!""#, node.uuid())
        .fetch_one(conn)
        .await
}

/// Forgets all but the newest `keep` lines of each of the nodes.
pub async fn trim(conn: &mut Connection, nodes: &[NodeId], keep: i64) -> Result<u64, sqlx::Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.uuid()).collect();
    let done = sqlx::query!(
        "DELETE FROM node_log_lines l USING (
             SELECT n.node_id, c.seq FROM UNNEST($1::uuid[]) AS n (node_id) CROSS JOIN LATERAL (
                 SELECT k.seq FROM node_log_lines k WHERE k.node_id = n.node_id ORDER BY k.seq DESC
                 OFFSET $2 LIMIT 1) AS c) AS cut
         WHERE l.node_id = cut.node_id AND l.seq <= cut.seq",
        &nodes,
        keep,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Nodes in the order of their ids, after one of them.
pub async fn nodes_after(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<NodeId>, sqlx::Error> {
    let ids = sqlx::query_scalar!("SELECT id FROM nodes WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
        .fetch_all(conn)
        .await?;
    Ok(ids.into_iter().map(NodeId::from).collect())
}
