//! Regions.

use chrono::{DateTime, Utc};
use kernel::{Code, Failure, Problem};
use pg::{Connection, Swap};

use crate::model::region::Region;

pub async fn insert(
    conn: &mut Connection,
    code: &str,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Region, Failure> {
    sqlx::query_as!(
        Region,
        "INSERT INTO regions (code, name, created_at, updated_at) VALUES ($1, $2, $3, $3)
         RETURNING code, name, version, created_at, updated_at",
        code,
        name,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("regions_pkey", || {
                Problem::new(Code::AlreadyExists, "A region with this code already exists.")
                    .detail("field", "code")
            })],
        )
    })
}

pub async fn get(conn: &mut Connection, code: &str) -> Result<Option<Region>, sqlx::Error> {
    sqlx::query_as!(
        Region,
        "SELECT code, name, version, created_at, updated_at FROM regions WHERE code = $1",
        code
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(
    conn: &mut Connection,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<Region>, sqlx::Error> {
    sqlx::query_as!(
        Region,
        "SELECT code, name, version, created_at, updated_at FROM regions
         WHERE $1::text IS NULL OR code > $1 ORDER BY code LIMIT $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await
}

pub async fn update(
    conn: &mut Connection,
    code: &str,
    name: Option<&str>,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Region>, sqlx::Error> {
    let updated = sqlx::query_as!(
        Region,
        "UPDATE regions SET name = coalesce($2, name), version = version + 1, updated_at = $4
         WHERE code = $1 AND version = coalesce($3, version)
         RETURNING code, name, version, created_at, updated_at",
        code,
        name,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, code, updated).await
}

pub async fn delete(
    conn: &mut Connection,
    code: &str,
    if_match: Option<i64>,
) -> Result<Swap<Region>, Failure> {
    let in_use: fn() -> Problem = || {
        Problem::new(Code::InUse, "Nodes or pools refer to this region, or did so earlier.")
            .suggest("Only a region that was never used can be deleted.")
    };
    let deleted = sqlx::query_as!(
        Region,
        "DELETE FROM regions WHERE code = $1 AND version = coalesce($2, version)
         RETURNING code, name, version, created_at, updated_at",
        code,
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(|error| {
        super::violated(error, &[("nodes_region_fkey", in_use), ("node_pools_region_fkey", in_use)])
    })?;
    Ok(swap(conn, code, deleted).await?)
}

async fn swap(conn: &mut Connection, code: &str, row: Option<Region>) -> Result<Swap<Region>, sqlx::Error> {
    let current = match row {
        Some(_) => None,
        None => get(conn, code).await?.map(|region| region.version),
    };
    Ok(Swap::from_update(row, current))
}
