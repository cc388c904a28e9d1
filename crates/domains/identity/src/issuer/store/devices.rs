//! Sign-ins of devices without a browser.

use chrono::{DateTime, Utc};
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

pub(crate) struct NewDevice<'a> {
    pub device_hash: &'a [u8],
    pub user_code: &'a str,
    pub client_id: &'a str,
    pub scope: &'a str,
    pub source_ip: Option<&'a str>,
    pub interval_seconds: i32,
    pub expires_at: DateTime<Utc>,
}

/// False when the user code is taken.
pub(crate) async fn insert(
    conn: &mut Connection,
    new: NewDevice<'_>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO issuer_device_codes (device_hash, user_code, client_id, scope, source_ip, interval_seconds,
            created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (user_code) DO NOTHING",
        new.device_hash,
        new.user_code,
        new.client_id,
        new.scope,
        new.source_ip,
        new.interval_seconds,
        now,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) struct Waiting {
    pub client_id: String,
    pub source_ip: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// A code that waits for somebody's decision.
pub(crate) async fn find_waiting(
    conn: &mut Connection,
    user_code: &str,
    now: DateTime<Utc>,
) -> Result<Option<Waiting>, Error> {
    sqlx::query_as!(
        Waiting,
        "SELECT client_id, source_ip, created_at FROM issuer_device_codes
         WHERE user_code = $1 AND expires_at > $2 AND approved_at IS NULL AND denied_at IS NULL",
        user_code,
        now,
    )
    .fetch_optional(conn)
    .await
}

/// False when there is nothing to approve, or the browser's sign-in is over. The lock makes it take turns
/// with what ends the sign-in.
pub(crate) async fn approve(
    conn: &mut Connection,
    user_code: &str,
    account: Uuid,
    browser_hash: &[u8],
    auth_time: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE issuer_device_codes SET approved_at = $5, account_id = $2, browser_hash = b.token_hash, auth_time = $4
         FROM (SELECT token_hash FROM issuer_browser_sessions WHERE token_hash = $3 AND account_id = $2 FOR KEY SHARE) b
         WHERE user_code = $1 AND expires_at > $5 AND approved_at IS NULL AND denied_at IS NULL",
        user_code,
        account,
        browser_hash,
        auth_time,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) async fn deny(conn: &mut Connection, user_code: &str, now: DateTime<Utc>) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE issuer_device_codes SET denied_at = $2
         WHERE user_code = $1 AND expires_at > $2 AND approved_at IS NULL AND denied_at IS NULL",
        user_code,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) struct Polled {
    pub expires_at: DateTime<Utc>,
    pub approved: bool,
    pub denied: bool,
    pub used: bool,
    pub too_soon: bool,
}

/// Notes the question, and answers it. Asking too soon lengthens the interval (RFC 8628).
pub(crate) async fn poll(
    conn: &mut Connection,
    device_hash: &[u8],
    client_id: &str,
    now: DateTime<Utc>,
) -> Result<Option<Polled>, Error> {
    sqlx::query_as!(
        Polled,
        r#"WITH before AS (
            SELECT device_hash, last_polled_at IS NOT NULL
                AND last_polled_at + make_interval(secs => interval_seconds) > $3 AS too_soon
            FROM issuer_device_codes WHERE device_hash = $1 AND client_id = $2 FOR UPDATE
         )
         UPDATE issuer_device_codes d SET last_polled_at = $3,
            interval_seconds = d.interval_seconds + CASE WHEN before.too_soon THEN 5 ELSE 0 END
         FROM before WHERE d.device_hash = before.device_hash
         RETURNING d.expires_at, d.approved_at IS NOT NULL AS "approved!", d.denied_at IS NOT NULL AS "denied!",
            d.used_at IS NOT NULL AS "used!", before.too_soon AS "too_soon!""#,
        device_hash,
        client_id,
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Who approved it.
pub(crate) async fn owner(conn: &mut Connection, device_hash: &[u8]) -> Result<Option<Uuid>, Error> {
    let found =
        sqlx::query_scalar!("SELECT account_id FROM issuer_device_codes WHERE device_hash = $1", device_hash)
            .fetch_optional(conn)
            .await?;
    Ok(found.flatten())
}

pub(crate) struct Approved {
    pub browser_hash: Option<Vec<u8>>,
    pub scope: String,
    pub auth_time: DateTime<Utc>,
}

/// Takes an approved code; a second taker gets nothing.
pub(crate) async fn take_approved(
    conn: &mut Connection,
    device_hash: &[u8],
    account: Uuid,
    now: DateTime<Utc>,
) -> Result<Option<Approved>, Error> {
    sqlx::query_as!(
        Approved,
        r#"UPDATE issuer_device_codes SET used_at = $3
           WHERE device_hash = $1 AND account_id = $2 AND used_at IS NULL AND expires_at > $3
           RETURNING browser_hash, scope, auth_time AS "auth_time!""#,
        device_hash,
        account,
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Those that somebody let in and that have not come for their tokens, and those that have.
pub(crate) async fn remove_of_account(conn: &mut Connection, account: Uuid) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_device_codes WHERE account_id = $1", account).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection, before: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_device_codes WHERE expires_at <= $1", before).execute(conn).await?;
    Ok(())
}

pub(crate) async fn remove_all(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_device_codes").execute(conn).await?;
    Ok(())
}
