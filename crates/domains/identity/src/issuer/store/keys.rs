//! Signing keys.

use chrono::{DateTime, Utc};
use pg::Connection;
use serde_json::Value;
use sqlx::Error;

pub(crate) struct KeyRow {
    pub kid: String,
    pub public_jwk: Value,
    pub private_sealed: Vec<u8>,
    pub active: bool,
    pub created_at: DateTime<Utc>,
}

/// What is published: the active key first.
pub(crate) async fn list(conn: &mut Connection, now: DateTime<Utc>) -> Result<Vec<KeyRow>, Error> {
    sqlx::query_as!(
        KeyRow,
        r#"SELECT kid, public_jwk, private_sealed, retired_at IS NULL AS "active!", created_at
           FROM issuer_keys WHERE retired_at IS NULL OR remove_at > $1
           ORDER BY retired_at DESC NULLS FIRST LIMIT 32"#,
        now,
    )
    .fetch_all(conn)
    .await
}

/// One rotation at a time, over all replicas, until the transaction ends.
pub(crate) async fn lock(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!(r#"SELECT pg_advisory_xact_lock(hashtext('issuer_keys')) AS "locked: ()""#)
        .execute(conn)
        .await?;
    Ok(())
}

pub(crate) async fn active_since(conn: &mut Connection) -> Result<Option<DateTime<Utc>>, Error> {
    sqlx::query_scalar!("SELECT created_at FROM issuer_keys WHERE retired_at IS NULL")
        .fetch_optional(conn)
        .await
}

pub(crate) async fn retire_active(
    conn: &mut Connection,
    now: DateTime<Utc>,
    remove_at: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE issuer_keys SET retired_at = $1, remove_at = $2 WHERE retired_at IS NULL",
        now,
        remove_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn insert(
    conn: &mut Connection,
    kid: &str,
    public_jwk: &Value,
    private_sealed: &[u8],
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO issuer_keys (kid, public_jwk, private_sealed, created_at) VALUES ($1, $2, $3, $4)",
        kid,
        public_jwk,
        private_sealed,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn remove_expired(conn: &mut Connection, now: DateTime<Utc>) -> Result<(), Error> {
    sqlx::query!("DELETE FROM issuer_keys WHERE remove_at <= $1", now).execute(conn).await?;
    Ok(())
}
