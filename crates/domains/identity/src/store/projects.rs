//! Projects.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{Connection, Swap};

use crate::model::project::Project;

pub async fn insert(
    conn: &mut Connection,
    org: OrgId,
    id: ProjectId,
    slug: &str,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Project, Failure> {
    sqlx::query_as!(
        Project,
        r#"INSERT INTO projects (id, org_id, slug, name, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
           RETURNING id, org_id, name, slug, version, created_at, updated_at"#,
        id.uuid(),
        org.uuid(),
        slug,
        name,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("projects_org_id_slug_key", || {
                Problem::new(Code::AlreadyExists, "The organization has a project with this slug.")
                    .detail("field", "slug")
            })],
        )
    })
}

pub async fn get(conn: &mut Connection, org: OrgId, id: ProjectId) -> Result<Option<Project>, sqlx::Error> {
    sqlx::query_as!(
        Project,
        r#"SELECT id, org_id, name, slug, version, created_at, updated_at FROM projects
           WHERE org_id = $1 AND id = $2"#,
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// All projects, or only those in which `only_of` has a role.
pub async fn list(
    conn: &mut Connection,
    org: OrgId,
    only_of: Option<UserId>,
    page: &PageQuery,
) -> Result<Vec<Project>, sqlx::Error> {
    sqlx::query_as!(
        Project,
        r#"SELECT id, org_id, name, slug, version, created_at, updated_at FROM projects p
           WHERE org_id = $1 AND id > $2
             AND ($4::uuid IS NULL OR EXISTS
                 (SELECT FROM project_memberships m WHERE m.project_id = p.id AND m.user_id = $4))
           ORDER BY id LIMIT $3"#,
        org.uuid(),
        page.after(),
        page.limit(),
        only_of.map(UserId::uuid),
    )
    .fetch_all(conn)
    .await
}

pub async fn update(
    conn: &mut Connection,
    org: OrgId,
    id: ProjectId,
    name: Option<&str>,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Project>, sqlx::Error> {
    let updated = sqlx::query_as!(
        Project,
        r#"UPDATE projects SET name = coalesce($3, name), version = version + 1, updated_at = $5
           WHERE org_id = $1 AND id = $2 AND version = coalesce($4, version)
           RETURNING id, org_id, name, slug, version, created_at, updated_at"#,
        org.uuid(),
        id.uuid(),
        name,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match updated {
        Some(_) => None,
        None => version(conn, org, id).await?,
    };
    Ok(Swap::of(updated, current))
}

pub async fn delete(
    conn: &mut Connection,
    org: OrgId,
    id: ProjectId,
    if_match: Option<i64>,
) -> Result<Swap<Project>, Failure> {
    let deleted = sqlx::query_as!(
        Project,
        r#"DELETE FROM projects WHERE org_id = $1 AND id = $2 AND version = coalesce($3, version)
           RETURNING id, org_id, name, slug, version, created_at, updated_at"#,
        org.uuid(),
        id.uuid(),
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("service_accounts_org_id_project_id_fkey", || {
                Problem::new(Code::InUse, "The project still has service accounts.")
                    .detail("kind", "service_account")
                    .suggest("Delete its service accounts first.")
            })],
        )
    })?;
    let current = match deleted {
        Some(_) => None,
        None => version(conn, org, id).await?,
    };
    Ok(Swap::of(deleted, current))
}

async fn version(conn: &mut Connection, org: OrgId, id: ProjectId) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!("SELECT version FROM projects WHERE org_id = $1 AND id = $2", org.uuid(), id.uuid())
        .fetch_optional(conn)
        .await
}
