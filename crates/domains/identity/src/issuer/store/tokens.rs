//! Refresh tokens.

use chrono::{DateTime, Utc};
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

pub(crate) struct NewToken<'a> {
    pub token_hash: &'a [u8],
    pub session_id: Uuid,
    pub account_id: Uuid,
    pub browser_hash: Option<&'a [u8]>,
    pub client_id: &'a str,
    pub scope: &'a str,
    pub auth_time: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

pub(crate) async fn insert(
    conn: &mut Connection,
    new: NewToken<'_>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO issuer_refresh_tokens (token_hash, session_id, account_id, browser_hash, client_id, scope,
            auth_time, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        new.token_hash,
        new.session_id,
        new.account_id,
        new.browser_hash,
        new.client_id,
        new.scope,
        new.auth_time,
        now,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) struct Rotated {
    pub account_id: Uuid,
    pub email: String,
    pub name: String,
    pub email_verified: bool,
    pub issuer_sid: String,
    pub scope: String,
    pub auth_time: DateTime<Utc>,
}

/// Uses up `old` and puts `new` in its place, in one statement. Nothing when `old` is unknown, used,
/// expired or another client's, or when its session or account has ended.
pub(crate) async fn rotate(
    conn: &mut Connection,
    old: &[u8],
    new: &[u8],
    client_id: &str,
    now: DateTime<Utc>,
) -> Result<Option<Rotated>, Error> {
    sqlx::query_as!(
        Rotated,
        r#"WITH old AS (
            UPDATE issuer_refresh_tokens SET used_at = $4
            WHERE token_hash = $1 AND client_id = $3 AND used_at IS NULL AND expires_at > $4
            RETURNING session_id, account_id, browser_hash, client_id, scope, auth_time, expires_at
         ), live AS (
            SELECT old.session_id, old.account_id, old.browser_hash, old.client_id, old.scope, old.auth_time, old.expires_at,
                s.issuer_sid, a.email, a.name, a.email_verified_at FROM old
            JOIN account_sessions s ON s.id = old.session_id AND s.revoked_at IS NULL AND s.expires_at > $4
            JOIN local_accounts a ON a.id = old.account_id AND a.disabled_at IS NULL
         ), made AS (
            INSERT INTO issuer_refresh_tokens
                (token_hash, session_id, account_id, browser_hash, client_id, scope, auth_time, created_at, expires_at)
            SELECT $2, session_id, account_id, browser_hash, client_id, scope, auth_time, $4, expires_at FROM live
         )
         SELECT account_id, email, name, email_verified_at IS NOT NULL AS "email_verified!", issuer_sid, scope, auth_time
         FROM live"#,
        old,
        new,
        client_id,
        now,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) struct Known {
    pub session_id: Uuid,
    pub user_id: Uuid,
    pub used: bool,
    pub client_id: String,
}

pub(crate) async fn find(conn: &mut Connection, token_hash: &[u8]) -> Result<Option<Known>, Error> {
    sqlx::query_as!(
        Known,
        r#"SELECT r.session_id, s.user_id, r.used_at IS NOT NULL AS "used!", r.client_id
           FROM issuer_refresh_tokens r JOIN account_sessions s ON s.id = r.session_id WHERE r.token_hash = $1"#,
        token_hash,
    )
    .fetch_optional(conn)
    .await
}

/// A service account's key was exchanged.
pub(crate) async fn key_used(conn: &mut Connection, key: Uuid, now: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE service_account_keys SET last_used_at = $2::timestamptz
         WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2::timestamptz - interval '1 minute')",
        key,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection, now: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_refresh_tokens WHERE expires_at <= $1", now).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_all(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_refresh_tokens").execute(conn).await?;
    Ok(())
}
