//! Names of organizations and projects by id.

use std::collections::HashMap;

use pg::Connection;
use uuid::Uuid;

pub async fn organizations(
    conn: &mut Connection,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let rows = sqlx::query!("SELECT id, name FROM organizations WHERE id = ANY ($1)", ids);
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.id, row.name)).collect())
}

pub async fn projects(conn: &mut Connection, ids: &[Uuid]) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let rows = sqlx::query!("SELECT id, name FROM projects WHERE id = ANY ($1)", ids);
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.id, row.name)).collect())
}
