//! Local accounts.

use chrono::{DateTime, Utc};
use kernel::ids::LocalAccountId;
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

use crate::issuer::model::Account;

struct Row {
    id: Uuid,
    email: String,
    name: String,
    email_verified: bool,
    must_change_password: bool,
    locked_until: Option<DateTime<Utc>>,
    disabled_at: Option<DateTime<Utc>>,
    version: i64,
    created_at: DateTime<Utc>,
}

impl From<Row> for Account {
    fn from(row: Row) -> Self {
        Self {
            id: LocalAccountId::from(row.id),
            email: row.email,
            name: row.name,
            email_verified: row.email_verified,
            must_change_password: row.must_change_password,
            locked_until: row.locked_until,
            disabled_at: row.disabled_at,
            version: row.version,
            created_at: row.created_at,
        }
    }
}

pub(crate) async fn find(conn: &mut Connection, id: LocalAccountId) -> Result<Option<Account>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, email, name, email_verified_at IS NOT NULL AS "email_verified!", must_change_password, locked_until,
               disabled_at, version, created_at
           FROM local_accounts WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Account::from))
}

/// The account, which cannot change before the transaction ends: whoever turns a proof into something that
/// is signed in takes turns with whoever ends everything.
pub(crate) async fn lock(conn: &mut Connection, id: LocalAccountId) -> Result<Option<Account>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, email, name, email_verified_at IS NOT NULL AS "email_verified!", must_change_password, locked_until,
               disabled_at, version, created_at
           FROM local_accounts WHERE id = $1 FOR NO KEY UPDATE"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Account::from))
}

pub(crate) async fn find_by_email(conn: &mut Connection, email: &str) -> Result<Option<Account>, Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, email, name, email_verified_at IS NOT NULL AS "email_verified!", must_change_password, locked_until,
               disabled_at, version, created_at
           FROM local_accounts WHERE email = lower($1)"#,
        email,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Account::from))
}

pub(crate) async fn list(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<Account>, Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, email, name, email_verified_at IS NOT NULL AS "email_verified!", must_change_password, locked_until,
               disabled_at, version, created_at
           FROM local_accounts WHERE id > $1 ORDER BY id LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Account::from).collect())
}

pub(crate) struct Credentials {
    pub id: Uuid,
    pub password_hash: String,
    pub version: i64,
}

/// What a password is checked against. Nothing for an account that is unknown or disabled.
pub(crate) async fn credentials(conn: &mut Connection, email: &str) -> Result<Option<Credentials>, Error> {
    sqlx::query_as!(
        Credentials,
        "SELECT id, password_hash, version FROM local_accounts WHERE email = lower($1) AND disabled_at IS NULL",
        email,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) struct NewRow<'a> {
    pub id: LocalAccountId,
    pub email: &'a str,
    pub name: &'a str,
    pub password_hash: &'a str,
    pub must_change_password: bool,
    pub email_verified: bool,
}

/// False when there is an account with the address.
pub(crate) async fn insert(
    conn: &mut Connection,
    new: NewRow<'_>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO local_accounts (id, email, name, password_hash, must_change_password, email_verified_at, created_at,
            updated_at)
         VALUES ($1, lower($2), $3, $4, $5, CASE WHEN $7 THEN $6::timestamptz END, $6, $6) ON CONFLICT (email) DO NOTHING",
        new.id.uuid(),
        new.email,
        new.name,
        new.password_hash,
        new.must_change_password,
        now,
        new.email_verified,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A new password also unlocks.
pub(crate) async fn set_password(
    conn: &mut Connection,
    id: LocalAccountId,
    password_hash: &str,
    must_change: bool,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE local_accounts SET password_hash = $2, must_change_password = $3, locked_until = NULL,
            version = version + 1, updated_at = $4 WHERE id = $1",
        id.uuid(),
        password_hash,
        must_change,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) async fn set_disabled(
    conn: &mut Connection,
    id: LocalAccountId,
    disabled_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE local_accounts SET disabled_at = $2, version = version + 1, updated_at = $3 WHERE id = $1",
        id.uuid(),
        disabled_at,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The address was proved to be its owner's. The first time counts.
pub(crate) async fn set_email_verified(
    conn: &mut Connection,
    id: LocalAccountId,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE local_accounts SET email_verified_at = $2, updated_at = $2 WHERE id = $1 AND email_verified_at IS NULL",
        id.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The invitation that a token is for.
pub(crate) async fn invitation_of_token(
    conn: &mut Connection,
    token_hash: &[u8],
) -> Result<Option<Uuid>, Error> {
    sqlx::query_scalar!("SELECT id FROM invitations WHERE token_hash = $1 AND state = 'pending'", token_hash)
        .fetch_optional(conn)
        .await
}
