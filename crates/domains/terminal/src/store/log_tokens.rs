//! Rights to follow a log of a node once.

use chrono::{DateTime, Utc};
use endpoint::SignIn;
use kernel::ids::NodeId;
use pg::{Connection, WriteTx};

use super::sign_in;

pub struct NewLogToken<'a> {
    pub hash: [u8; 32],
    pub node_id: NodeId,
    pub sign_in: SignIn,
    pub sealed_grant: &'a [u8],
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

pub async fn insert(tx: &mut WriteTx, token: &NewLogToken<'_>) -> Result<(), sqlx::Error> {
    let (session, key) = sign_in::columns(token.sign_in);
    sqlx::query!(
        "INSERT INTO node_log_tokens (token_hash, node_id, account_session_id, service_account_key_id, sealed_grant,
             created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &token.hash[..],
        token.node_id.uuid(),
        session,
        key,
        token.sealed_grant,
        token.created_at,
        token.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What a token was good for.
pub struct ConsumedLogToken {
    pub node_id: NodeId,
    pub sign_in: SignIn,
    pub sealed_grant: Vec<u8>,
    pub expires_at: DateTime<Utc>,
}

/// Uses a token up: of several with the same one, one gets it.
pub async fn consume(
    conn: &mut Connection,
    hash: &[u8; 32],
) -> Result<Option<ConsumedLogToken>, sqlx::Error> {
    let row = sqlx::query!(
        "DELETE FROM node_log_tokens WHERE token_hash = $1
         RETURNING node_id, account_session_id, service_account_key_id, sealed_grant, expires_at",
        &hash[..],
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(|row| {
        Some(ConsumedLogToken {
            node_id: row.node_id.into(),
            sign_in: sign_in::from_columns(row.account_session_id, row.service_account_key_id)?,
            sealed_grant: row.sealed_grant,
            expires_at: row.expires_at,
        })
    }))
}

/// Forgets tokens that nobody used in time. Answers how many.
pub async fn forget_expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM node_log_tokens WHERE token_hash IN
             (SELECT token_hash FROM node_log_tokens WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
        now,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
