//! Service accounts.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId, ServiceAccountId},
    text::Name,
};
use pg::{Connection, Swap};

use crate::model::service_account::{ServiceAccount, ServiceAccountRole, ServiceAccountState};

pub struct NewAccount {
    pub name: Name,
    pub role: ServiceAccountRole,
    pub ssh_public_keys: Vec<String>,
}

impl NewAccount {
    /// That launches nothing.
    pub const fn reader(name: Name) -> Self {
        Self { name, role: ServiceAccountRole::Reader, ssh_public_keys: Vec::new() }
    }
}

/// What is not given stays as it is.
#[derive(Default)]
pub struct AccountChange {
    pub name: Option<Name>,
    pub role: Option<ServiceAccountRole>,
    pub ssh_public_keys: Option<Vec<String>>,
    pub disabled: Option<bool>,
}

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
    new: &NewAccount,
    now: DateTime<Utc>,
) -> Result<ServiceAccount, Failure> {
    sqlx::query_as!(
        ServiceAccount,
        r#"INSERT INTO service_accounts (id, org_id, project_id, name, created_at, updated_at, role, ssh_public_keys)
           VALUES ($1, $2, $3, $4, $5, $5, $6, $7)
           RETURNING id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at"#,
        id.uuid(),
        org.uuid(),
        project.uuid(),
        new.name.as_str(),
        now,
        new.role.name(),
        &new.ssh_public_keys,
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
        r#"SELECT id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
           WHERE project_id = $1 AND id = $2"#,
        project.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// What an account is called, and where it is.
pub struct Names {
    pub name: String,
    pub project_name: String,
    pub org_name: String,
}

pub async fn names(conn: &mut Connection, id: ServiceAccountId) -> Result<Option<Names>, sqlx::Error> {
    sqlx::query_as!(
        Names,
        r#"SELECT a.name, p.name AS project_name, o.name AS org_name
           FROM service_accounts a JOIN projects p ON p.id = a.project_id JOIN organizations o ON o.id = a.org_id
           WHERE a.id = $1"#,
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
        r#"SELECT id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
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
        r#"SELECT id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at FROM service_accounts
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
    change: &AccountChange,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<ServiceAccount>, Failure> {
    let updated = sqlx::query_as!(
        ServiceAccount,
        r#"UPDATE service_accounts SET name = coalesce($3, name), role = coalesce($7, role),
               ssh_public_keys = coalesce($8, ssh_public_keys),
               disabled_at = CASE $4::boolean WHEN true THEN coalesce(disabled_at, $6) WHEN false THEN NULL ELSE disabled_at END,
               version = version + 1, updated_at = $6
           WHERE project_id = $1 AND id = $2 AND version = coalesce($5, version)
           RETURNING id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at"#,
        project.uuid(),
        id.uuid(),
        change.name.as_ref().map(Name::as_str),
        change.disabled,
        if_match,
        now,
        change.role.map(ServiceAccountRole::name),
        change.ssh_public_keys.as_deref(),
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
           RETURNING id, project_id, name, role AS "role: ServiceAccountRole", ssh_public_keys,
               state AS "state: ServiceAccountState", version, created_at, updated_at"#,
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
