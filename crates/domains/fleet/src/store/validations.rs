//! Evidence of the gate before a node serves tenants. Rows are only added.

use kernel::{PageQuery, ids::NodeId};
use pg::Connection;

use crate::model::topology::Validation;

pub async fn insert(conn: &mut Connection, validation: &Validation) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_validations (id, node_id, task_id, profile, passed, evidence, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        validation.id.uuid(),
        validation.node_id.uuid(),
        validation.task_id.uuid(),
        validation.profile,
        validation.passed,
        validation.evidence,
        validation.created_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    node: NodeId,
    page: &PageQuery,
) -> Result<Vec<Validation>, sqlx::Error> {
    sqlx::query_as!(
        Validation,
        "SELECT id, node_id, task_id, profile, passed, evidence, created_at FROM node_validations
         WHERE node_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        node.uuid(),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}
