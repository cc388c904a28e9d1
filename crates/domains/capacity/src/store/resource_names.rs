//! Names of allocations and products.

use std::collections::HashMap;

use pg::Connection;
use uuid::Uuid;

pub async fn allocations(conn: &mut Connection, ids: &[Uuid]) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let rows = sqlx::query!("SELECT id, name FROM allocations WHERE id = ANY ($1)", ids);
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.id, row.name)).collect())
}

pub async fn products(
    conn: &mut Connection,
    skus: &[String],
) -> Result<HashMap<String, String>, sqlx::Error> {
    let rows = sqlx::query!("SELECT sku, display_name FROM sku_catalog WHERE sku = ANY ($1)", skus);
    Ok(rows.fetch_all(conn).await?.into_iter().map(|row| (row.sku, row.display_name)).collect())
}
