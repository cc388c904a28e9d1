//! Keys of service accounts: hashes only.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{OrgId, ServiceAccountId, ServiceAccountKeyId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::service_account::{ServiceAccountKey, key_state};

struct Row {
    id: Uuid,
    service_account_id: Uuid,
    expires_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl Row {
    fn at(self, now: DateTime<Utc>) -> ServiceAccountKey {
        ServiceAccountKey {
            id: self.id.into(),
            service_account_id: self.service_account_id.into(),
            state: key_state(self.expires_at, self.revoked_at, now),
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            last_used_at: self.last_used_at,
            created_at: self.created_at,
        }
    }
}

pub async fn insert(
    conn: &mut Connection,
    org: OrgId,
    account: ServiceAccountId,
    id: ServiceAccountKeyId,
    secret_hash: &[u8; 32],
    expires_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<ServiceAccountKey, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO service_account_keys (id, org_id, service_account_id, secret_hash, expires_at, created_at)
           VALUES ($1, $2, $3, $4, $5, $6)
           RETURNING id, service_account_id, expires_at, revoked_at, last_used_at, created_at"#,
        id.uuid(),
        org.uuid(),
        account.uuid(),
        &secret_hash[..],
        expires_at,
        now,
    )
    .fetch_one(conn)
    .await?;
    Ok(row.at(now))
}

pub async fn live_count(
    conn: &mut Connection,
    account: ServiceAccountId,
    now: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM service_account_keys
           WHERE service_account_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"#,
        account.uuid(),
        now,
    )
    .fetch_one(conn)
    .await
}

pub async fn list(
    conn: &mut Connection,
    account: ServiceAccountId,
    page: &PageQuery,
    now: DateTime<Utc>,
) -> Result<Vec<ServiceAccountKey>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, service_account_id, expires_at, revoked_at, last_used_at, created_at FROM service_account_keys
           WHERE service_account_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        account.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.at(now)).collect())
}

/// The ids of all keys, so that what is cached of them can be dropped.
pub async fn ids(conn: &mut Connection, account: ServiceAccountId) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM service_account_keys WHERE service_account_id = $1", account.uuid())
        .fetch_all(conn)
        .await
}

/// A key that was revoked before keeps its first time.
pub async fn revoke(
    conn: &mut Connection,
    account: ServiceAccountId,
    id: ServiceAccountKeyId,
    now: DateTime<Utc>,
) -> Result<Option<ServiceAccountKey>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE service_account_keys SET revoked_at = coalesce(revoked_at, $3)
           WHERE service_account_id = $1 AND id = $2
           RETURNING id, service_account_id, expires_at, revoked_at, last_used_at, created_at"#,
        account.uuid(),
        id.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| row.at(now)))
}
