//! Bootstrap and repair tokens, by their hashes.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, NodeTokenId};
use pg::Connection;

use crate::model::token::{StoredToken, TokenPurpose};

pub async fn insert(
    conn: &mut Connection,
    id: NodeTokenId,
    (node, purpose): (NodeId, TokenPurpose),
    hash: &[u8; 32],
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_tokens (id, node_id, purpose, token_hash, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        id.uuid(),
        node.uuid(),
        purpose.name(),
        &hash[..],
        now,
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The token with this hash, and the hash as it is stored.
pub async fn find(
    conn: &mut Connection,
    hash: &[u8; 32],
) -> Result<Option<(StoredToken, Vec<u8>)>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT id, node_id, purpose AS "purpose: TokenPurpose", token_hash, expires_at, used_at,
               revoked_at FROM node_tokens WHERE token_hash = $1"#,
        &hash[..],
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let token = StoredToken {
            id: row.id.into(),
            node_id: row.node_id.into(),
            purpose: row.purpose,
            expires_at: row.expires_at,
            used_at: row.used_at,
            revoked_at: row.revoked_at,
        };
        (token, row.token_hash)
    }))
}

/// Uses the token up. False when somebody was faster, or it is too late.
pub async fn spend(conn: &mut Connection, id: NodeTokenId, now: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE node_tokens SET used_at = $2
         WHERE id = $1 AND used_at IS NULL AND revoked_at IS NULL AND expires_at > $2",
        id.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes whatever token of the node was not used yet.
pub async fn revoke_open(
    conn: &mut Connection,
    node: NodeId,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE node_tokens SET revoked_at = $2 WHERE node_id = $1 AND used_at IS NULL AND revoked_at IS NULL",
        node.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Forgets tokens that ended before `cutoff`.
pub async fn forget(conn: &mut Connection, cutoff: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM node_tokens WHERE id IN (SELECT id FROM node_tokens WHERE expires_at < $1 ORDER BY id LIMIT $2)",
        cutoff,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
