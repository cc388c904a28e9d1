//! Service accounts.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId, ServiceAccountId},
};
use pg::{Connection, Swap};

use crate::model::service_account::{ServiceAccount, ServiceAccountState};

fn name_taken(error: sqlx::Error) -> Failure {
    super::violated(
        error,
        &[
            ("service_accounts_project_id_name_key", || {
                Problem::new(
                    Code::AlreadyExists,
                    "A service account with this name already exists in the project.",
                )
                .detail("field", "name")
            }),
            ("service_accounts_org_id_project_id_fkey", || Problem::not_found("project")),
        ],
    )
}

pub async fn insert(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    id: ServiceAccountId,
    name: &str,
    now: DateTime<Utc>,
) -> Result<ServiceAccount, Failure> {
    sqlx::query_as!(
        ServiceAccount,
        r#"INSERT INTO service_accounts (id, org_id, project_id, name, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $5)
           RETURNING id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at"#,
        id.uuid(),
        org.uuid(),
        project.uuid(),
        name,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(name_taken)
}

pub async fn get(
    conn: &mut Connection,
    project: ProjectId,
    id: ServiceAccountId,
) -> Result<Option<ServiceAccount>, sqlx::Error> {
    sqlx::query_as!(
        ServiceAccount,
        r#"SELECT id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
           WHERE project_id = $1 AND id = $2"#,
        project.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// The account's row, held until the transaction ends.
pub async fn lock(
    conn: &mut Connection,
    project: ProjectId,
    id: ServiceAccountId,
) -> Result<Option<ServiceAccount>, sqlx::Error> {
    sqlx::query_as!(
        ServiceAccount,
        r#"SELECT id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
           WHERE project_id = $1 AND id = $2 FOR UPDATE"#,
        project.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Vec<ServiceAccount>, sqlx::Error> {
    sqlx::query_as!(
        ServiceAccount,
        r#"SELECT id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
           WHERE org_id = $1 AND project_id = $2 AND id > $3 ORDER BY id LIMIT $4"#,
        org.uuid(),
        project.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

pub async fn update(
    conn: &mut Connection,
    project: ProjectId,
    id: ServiceAccountId,
    name: Option<&str>,
    disabled: Option<bool>,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<ServiceAccount>, Failure> {
    let updated = sqlx::query_as!(
        ServiceAccount,
        r#"UPDATE service_accounts SET name = coalesce($3, name),
               disabled_at = CASE $4::boolean WHEN true THEN coalesce(disabled_at, $6) WHEN false THEN NULL ELSE disabled_at END,
               version = version + 1, updated_at = $6
           WHERE project_id = $1 AND id = $2 AND version = coalesce($5, version)
           RETURNING id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at"#,
        project.uuid(),
        id.uuid(),
        name,
        disabled,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(name_taken)?;
    let current = match updated {
        Some(_) => None,
        None => get(conn, project, id).await?.map(|account| account.version),
    };
    Ok(Swap::from_update(updated, current))
}

pub async fn delete(
    conn: &mut Connection,
    project: ProjectId,
    id: ServiceAccountId,
    if_match: Option<i64>,
) -> Result<Swap<ServiceAccount>, sqlx::Error> {
    let deleted = sqlx::query_as!(
        ServiceAccount,
        r#"DELETE FROM service_accounts WHERE project_id = $1 AND id = $2 AND version = coalesce($3, version)
           RETURNING id, project_id, name, state AS "state: ServiceAccountState", version, created_at, updated_at"#,
        project.uuid(),
        id.uuid(),
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match deleted {
        Some(_) => None,
        None => get(conn, project, id).await?.map(|account| account.version),
    };
    Ok(Swap::from_update(deleted, current))
}
