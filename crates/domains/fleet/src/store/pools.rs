//! Pools.

use chrono::{DateTime, Utc};
use kernel::{Code, Failure, PageQuery, Problem, ids::PoolId};
use pg::{Connection, Swap};

use crate::model::pool::Pool;

pub async fn insert(
    conn: &mut Connection,
    id: PoolId,
    (region, name, description): (&str, &str, &str),
    now: DateTime<Utc>,
) -> Result<Pool, Failure> {
    sqlx::query_as!(
        Pool,
        "INSERT INTO node_pools (id, region, name, description, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
         RETURNING id, region, name, description, version, created_at, updated_at",
        id.uuid(),
        region,
        name,
        description,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[
                ("node_pools_name", taken),
                ("node_pools_region_fkey", || Problem::field("region", "there is no such region")),
            ],
        )
    })
}

fn taken() -> Problem {
    Problem::new(Code::AlreadyExists, "A pool with this name already exists in the region.")
        .detail("field", "name")
}

pub async fn get(conn: &mut Connection, id: PoolId) -> Result<Option<Pool>, sqlx::Error> {
    sqlx::query_as!(
        Pool,
        "SELECT id, region, name, description, version, created_at, updated_at FROM node_pools WHERE id = $1",
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(
    conn: &mut Connection,
    region: Option<&str>,
    page: &PageQuery,
) -> Result<Vec<Pool>, sqlx::Error> {
    sqlx::query_as!(
        Pool,
        "SELECT id, region, name, description, version, created_at, updated_at FROM node_pools
         WHERE id > $1 AND ($3::text IS NULL OR region = $3) ORDER BY id LIMIT $2",
        page.after(),
        page.limit(),
        region,
    )
    .fetch_all(conn)
    .await
}

pub async fn update(
    conn: &mut Connection,
    id: PoolId,
    (name, description): (Option<&str>, Option<&str>),
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Pool>, Failure> {
    let updated = sqlx::query_as!(
        Pool,
        "UPDATE node_pools SET name = coalesce($2, name), description = coalesce($3, description),
             version = version + 1, updated_at = $5
         WHERE id = $1 AND version = coalesce($4, version)
         RETURNING id, region, name, description, version, created_at, updated_at",
        id.uuid(),
        name,
        description,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(|error| super::violated(error, &[("node_pools_name", taken)]))?;
    Ok(swap(conn, id, updated).await?)
}

pub async fn delete(conn: &mut Connection, id: PoolId, if_match: Option<i64>) -> Result<Swap<Pool>, Failure> {
    let deleted = sqlx::query_as!(
        Pool,
        "DELETE FROM node_pools WHERE id = $1 AND version = coalesce($2, version)
         RETURNING id, region, name, description, version, created_at, updated_at",
        id.uuid(),
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("nodes_pool_id_fkey", || {
                Problem::new(Code::InUse, "The pool has nodes.")
                    .suggest("Move its nodes to another pool first.")
            })],
        )
    })?;
    Ok(swap(conn, id, deleted).await?)
}

/// Deleted nodes need no pool.
pub async fn leave_deleted(conn: &mut Connection, id: PoolId) -> Result<(), sqlx::Error> {
    sqlx::query!("UPDATE nodes SET pool_id = NULL WHERE pool_id = $1 AND state = 'deleted'", id.uuid())
        .execute(conn)
        .await?;
    Ok(())
}

async fn swap(conn: &mut Connection, id: PoolId, row: Option<Pool>) -> Result<Swap<Pool>, sqlx::Error> {
    let current = match row {
        Some(_) => None,
        None => get(conn, id).await?.map(|pool| pool.version),
    };
    Ok(Swap::from_update(row, current))
}
