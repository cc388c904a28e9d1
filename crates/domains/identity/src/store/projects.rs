//! Projects.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{Connection, Swap};

use crate::model::project::{Project, ProjectResident, ProjectResidents};

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
                Problem::new(Code::AlreadyExists, "A project with this slug already exists in the organization.")
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
    Ok(Swap::from_update(updated, current))
}

/// How many of what lives in a project are named one by one.
const RESIDENTS_NAMED: i64 = 20;

/// What keeps the project from being deleted. The project's row is locked first: a launch under way is waited for
/// and then seen, and a later one waits for the caller's transaction. Nothing when there is no such project.
pub async fn lock_and_find_residents(
    conn: &mut Connection,
    org: OrgId,
    id: ProjectId,
) -> Result<Option<ProjectResidents>, sqlx::Error> {
    let locked = sqlx::query_scalar!(
        "SELECT id FROM projects WHERE org_id = $1 AND id = $2 FOR UPDATE",
        org.uuid(),
        id.uuid(),
    );
    if locked.fetch_optional(&mut *conn).await?.is_none() {
        return Ok(None);
    }
    let counts = sqlx::query!(
        r#"SELECT kind AS "kind!", count(*) AS "count!" FROM project_residents WHERE org_id = $1 AND project_id = $2
           GROUP BY kind ORDER BY kind"#,
        org.uuid(),
        id.uuid(),
    )
    .fetch_all(&mut *conn)
    .await?;
    let first = sqlx::query_as!(
        ProjectResident,
        r#"SELECT kind AS "kind!", id AS "id!", name AS "name!", state AS "state!" FROM project_residents
           WHERE org_id = $1 AND project_id = $2 ORDER BY kind, id LIMIT $3"#,
        org.uuid(),
        id.uuid(),
        RESIDENTS_NAMED,
    )
    .fetch_all(conn)
    .await?;
    let counts = counts.into_iter().map(|row| (row.kind, row.count)).collect();
    Ok(Some(ProjectResidents { counts, first }))
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
        let in_use = || Problem::new(Code::InUse, "The project still contains resources.");
        super::violated(
            error,
            &[
                ("service_accounts_org_id_project_id_fkey", in_use),
                ("allocations_live_project", in_use),
                ("meters_live_project", in_use),
                ("budgets_project", in_use),
            ],
        )
    })?;
    let current = match deleted {
        Some(_) => None,
        None => version(conn, org, id).await?,
    };
    Ok(Swap::from_update(deleted, current))
}

async fn version(conn: &mut Connection, org: OrgId, id: ProjectId) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!("SELECT version FROM projects WHERE org_id = $1 AND id = $2", org.uuid(), id.uuid())
        .fetch_optional(conn)
        .await
}
