//! Access grants and key sets.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery,
    ids::{AllocationId, UserId},
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use super::allocation_ends::reload_changed;
use crate::model::{access::Grant, allocation::Allocation};

struct Row {
    user_id: Uuid,
    granted_by: Uuid,
    granted_at: DateTime<Utc>,
}

impl From<Row> for Grant {
    fn from(row: Row) -> Self {
        Self { user_id: row.user_id.into(), granted_by: row.granted_by.into(), granted_at: row.granted_at }
    }
}

pub async fn list(
    conn: &mut Connection,
    allocation: AllocationId,
    page: &PageQuery,
) -> Result<Vec<Grant>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT user_id, granted_by, granted_at FROM allocation_access_grants
         WHERE allocation_id = $1 AND user_id > $2 ORDER BY user_id LIMIT $3",
        allocation.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Grant::from).collect())
}

/// Everybody with a grant; there are few, by the limit at which they are made.
pub async fn granted(conn: &mut Connection, allocation: AllocationId) -> Result<Vec<UserId>, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        "SELECT user_id FROM allocation_access_grants WHERE allocation_id = $1 ORDER BY user_id",
        allocation.uuid()
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(UserId::from).collect())
}

/// Nothing when there is one already.
pub async fn insert(
    tx: &mut WriteTx,
    allocation: &Allocation,
    user: UserId,
    by: UserId,
) -> Result<Option<Grant>, sqlx::Error> {
    let now = tx.db().ambient().now();
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO allocation_access_grants (allocation_id, user_id, org_id, granted_by, granted_at)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING user_id, granted_by, granted_at",
        allocation.id.uuid(),
        user.uuid(),
        allocation.org_id.uuid(),
        by.uuid(),
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(Grant::from))
}

pub async fn delete(
    conn: &mut Connection,
    allocation: AllocationId,
    user: UserId,
) -> Result<Option<Grant>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "DELETE FROM allocation_access_grants WHERE allocation_id = $1 AND user_id = $2
         RETURNING user_id, granted_by, granted_at",
        allocation.uuid(),
        user.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Grant::from))
}

/// Another key set is wanted: the next version, with the order that installs it.
pub async fn order_set(tx: &mut WriteTx, before: &Allocation, order: &[u8]) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    let changed = sqlx::query!(
        "UPDATE allocations SET access_version = access_version + 1, access_order = $3, updated_at = $4,
            version = version + 1
         WHERE id = $1 AND version = $2",
        before.id.uuid(),
        before.version,
        order,
        now,
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    reload_changed(tx, before, changed).await
}
