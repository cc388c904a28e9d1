//! Which allocations are active, for whoever compares that with what is metered.

use kernel::ids::{AllocationId, OrgId};
use pg::Connection;
use uuid::Uuid;

/// After this one, by id.
pub async fn page(
    conn: &mut Connection,
    after: AllocationId,
    limit: i64,
) -> Result<Vec<(AllocationId, OrgId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT id, org_id FROM allocations WHERE state = 'active' AND id > $1 ORDER BY id LIMIT $2",
        after.uuid(),
        limit
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (AllocationId::from(row.id), OrgId::from(row.org_id))).collect())
}

pub async fn among(conn: &mut Connection, ids: &[AllocationId]) -> Result<Vec<AllocationId>, sqlx::Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows =
        sqlx::query_scalar!("SELECT id FROM allocations WHERE id = ANY($1) AND state = 'active'", &ids);
    Ok(rows.fetch_all(conn).await?.into_iter().map(AllocationId::from).collect())
}
