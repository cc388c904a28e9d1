//! Authorization codes.

use chrono::{DateTime, Utc};
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

pub(crate) struct NewCode<'a> {
    pub code_hash: &'a [u8],
    pub account_id: Uuid,
    pub browser_hash: &'a [u8],
    pub client_id: &'a str,
    pub redirect_uri: &'a str,
    pub code_challenge: &'a str,
    pub scope: &'a str,
    pub nonce: Option<&'a str>,
    pub auth_time: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// False when the browser's sign-in is over. The lock makes it take turns with what ends the sign-in.
pub(crate) async fn insert(conn: &mut Connection, new: NewCode<'_>) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO issuer_codes (code_hash, account_id, browser_hash, client_id, redirect_uri, code_challenge,
            scope, nonce, auth_time, expires_at)
         SELECT $1::bytea, account_id, token_hash, $4::text, $5::text, $6::text, $7::text, $8::text, $9::timestamptz,
            $10::timestamptz
         FROM issuer_browser_sessions WHERE token_hash = $3 AND account_id = $2 FOR KEY SHARE",
        new.code_hash,
        new.account_id,
        new.browser_hash,
        new.client_id,
        new.redirect_uri,
        new.code_challenge,
        new.scope,
        new.nonce,
        new.auth_time,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) struct CodeRow {
    pub account_id: Uuid,
    pub browser_hash: Vec<u8>,
    pub client_id: String,
    pub redirect_uri: String,
    pub code_challenge: String,
    pub scope: String,
    pub nonce: Option<String>,
    pub auth_time: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub used_at: Option<DateTime<Utc>>,
    pub session_id: Option<Uuid>,
}

/// Reads a code and holds it until the transaction ends: of two exchanges, one comes second.
pub(crate) async fn take(conn: &mut Connection, code_hash: &[u8]) -> Result<Option<CodeRow>, Error> {
    sqlx::query_as!(
        CodeRow,
        "SELECT account_id, browser_hash, client_id, redirect_uri, code_challenge, scope, nonce, auth_time,
            expires_at, used_at, session_id FROM issuer_codes WHERE code_hash = $1 FOR UPDATE",
        code_hash,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) async fn mark_used(
    conn: &mut Connection,
    code_hash: &[u8],
    session: Option<Uuid>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE issuer_codes SET used_at = $2, session_id = $3 WHERE code_hash = $1 AND used_at IS NULL",
        code_hash,
        now,
        session,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn remove_of_account(conn: &mut Connection, account: Uuid) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_codes WHERE account_id = $1", account).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection, before: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_codes WHERE expires_at <= $1", before).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_all(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_codes").execute(conn).await?;
    Ok(())
}
