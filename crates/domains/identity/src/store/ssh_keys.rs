//! People's SSH public keys.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{ProjectId, SshKeyId, UserId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::ssh_key::{CheckedKey, SshKey};

pub async fn insert(
    conn: &mut Connection,
    user: UserId,
    id: SshKeyId,
    name: &str,
    key: &CheckedKey,
    now: DateTime<Utc>,
) -> Result<SshKey, Failure> {
    sqlx::query_as!(
        SshKey,
        r#"INSERT INTO user_ssh_keys (id, user_id, name, key_type, fingerprint, public_key, created_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7)
           RETURNING id, name, key_type, fingerprint, public_key, created_at"#,
        id.uuid(),
        user.uuid(),
        name,
        key.key_type,
        key.fingerprint,
        key.public_key,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("user_ssh_keys_user_id_fingerprint_key", || {
                Problem::new(Code::AlreadyExists, "You have already stored this key.")
                    .detail("field", "public_key")
            })],
        )
    })
}

/// How many keys the person has; no more can come before the transaction ends.
pub async fn lock_count(conn: &mut Connection, user: UserId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM users WHERE id = $1 FOR UPDATE", user.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM user_ssh_keys WHERE user_id = $1"#, user.uuid())
        .fetch_one(conn)
        .await
}

pub async fn get(conn: &mut Connection, user: UserId, id: SshKeyId) -> Result<Option<SshKey>, sqlx::Error> {
    sqlx::query_as!(
        SshKey,
        "SELECT id, name, key_type, fingerprint, public_key, created_at FROM user_ssh_keys
         WHERE user_id = $1 AND id = $2",
        user.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(conn: &mut Connection, user: UserId, page: &PageQuery) -> Result<Vec<SshKey>, sqlx::Error> {
    sqlx::query_as!(
        SshKey,
        "SELECT id, name, key_type, fingerprint, public_key, created_at FROM user_ssh_keys
         WHERE user_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        user.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

pub async fn delete(
    conn: &mut Connection,
    user: UserId,
    id: SshKeyId,
) -> Result<Option<SshKey>, sqlx::Error> {
    sqlx::query_as!(
        SshKey,
        "DELETE FROM user_ssh_keys WHERE user_id = $1 AND id = $2
         RETURNING id, name, key_type, fingerprint, public_key, created_at",
        user.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// The public keys of those of `principals` who can enter the project; of anybody else nothing.
pub async fn of_members(
    conn: &mut Connection,
    project: ProjectId,
    principals: &[Uuid],
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT user_id AS "user_id!", public_key AS "public_key!" FROM member_ssh_keys($1, $2)"#,
        project.uuid(),
        principals,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.public_key)).collect())
}
