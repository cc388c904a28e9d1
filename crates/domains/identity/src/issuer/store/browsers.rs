//! Browsers that are signed in at the issuer.

use chrono::{DateTime, Utc};
use kernel::ids::LocalAccountId;
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

pub(crate) struct BrowserRow {
    pub account_id: Uuid,
    pub auth_time: DateTime<Utc>,
}

/// Nothing when the sign-in is over: expired, the account disabled, or a session made from it was revoked.
pub(crate) async fn find(
    conn: &mut Connection,
    token_hash: &[u8],
    now: DateTime<Utc>,
) -> Result<Option<BrowserRow>, Error> {
    sqlx::query_as!(
        BrowserRow,
        "SELECT b.account_id, b.auth_time FROM issuer_browser_sessions b
         JOIN local_accounts a ON a.id = b.account_id AND a.disabled_at IS NULL
         WHERE b.token_hash = $1 AND b.expires_at > $2 AND NOT EXISTS (
            SELECT FROM issuer_refresh_tokens r JOIN account_sessions s ON s.id = r.session_id
            WHERE r.browser_hash = b.token_hash AND s.revoked_at IS NOT NULL)",
        token_hash,
        now,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) async fn insert(
    conn: &mut Connection,
    token_hash: &[u8],
    account: LocalAccountId,
    auth_time: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO issuer_browser_sessions (token_hash, account_id, auth_time, expires_at) VALUES ($1, $2, $3, $4)",
        token_hash,
        account.uuid(),
        auth_time,
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn remove(conn: &mut Connection, token_hash: &[u8]) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_browser_sessions WHERE token_hash = $1", token_hash)
        .execute(conn)
        .await?;
    Ok(())
}

pub(crate) async fn remove_of_account(conn: &mut Connection, account: LocalAccountId) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_browser_sessions WHERE account_id = $1", account.uuid())
        .execute(conn)
        .await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection, now: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_browser_sessions WHERE expires_at <= $1", now).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_all(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_browser_sessions").execute(conn).await?;
    Ok(())
}
