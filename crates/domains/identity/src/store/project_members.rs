//! Members of projects.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{Connection, Swap};

use crate::model::{membership::ProjectMember, role::MemberRole};

pub async fn get(
    conn: &mut Connection,
    project: ProjectId,
    user: UserId,
) -> Result<Option<ProjectMember>, sqlx::Error> {
    sqlx::query_as!(
        ProjectMember,
        r#"SELECT u.id, u.name, u.email, m.role AS "role: MemberRole", m.version, m.created_at, m.updated_at
           FROM project_memberships m JOIN users u ON u.id = m.user_id
           WHERE m.project_id = $1 AND m.user_id = $2"#,
        project.uuid(),
        user.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// The role somebody holds, which cannot change before the transaction ends.
pub async fn lock(
    conn: &mut Connection,
    project: ProjectId,
    user: UserId,
) -> Result<Option<(MemberRole, i64)>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT role AS "role: MemberRole", version FROM project_memberships WHERE project_id = $1 AND user_id = $2 FOR UPDATE"#,
        project.uuid(),
        user.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| (row.role, row.version)))
}

pub async fn list(
    conn: &mut Connection,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Vec<ProjectMember>, sqlx::Error> {
    sqlx::query_as!(
        ProjectMember,
        r#"SELECT u.id, u.name, u.email, m.role AS "role: MemberRole", m.version, m.created_at, m.updated_at
           FROM project_memberships m JOIN users u ON u.id = m.user_id
           WHERE m.project_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3"#,
        project.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

/// Changes the role of a member that is locked.
pub async fn update(
    conn: &mut Connection,
    project: ProjectId,
    user: UserId,
    role: MemberRole,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE project_memberships SET role = $3, version = version + 1, updated_at = $4
         WHERE project_id = $1 AND user_id = $2",
        project.uuid(),
        user.uuid(),
        role.name(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// False when there is such a member already.
pub async fn insert(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    user: UserId,
    role: MemberRole,
    now: DateTime<Utc>,
) -> Result<bool, Failure> {
    let done = sqlx::query!(
        "INSERT INTO project_memberships (org_id, project_id, user_id, role, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (project_id, user_id) DO NOTHING",
        org.uuid(),
        project.uuid(),
        user.uuid(),
        role.name(),
        now,
    )
    .execute(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[
                ("project_memberships_org_id_user_id_fkey", || {
                    Problem::not_found("member")
                        .suggest("Only members of the organization can join its projects.")
                }),
                ("project_memberships_org_id_project_id_fkey", || Problem::not_found("project")),
            ],
        )
    })?;
    Ok(done.rows_affected() == 1)
}

/// Makes `user` an owner of the project, when they belong to its organization.
pub async fn insert_creator(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    user: UserId,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "INSERT INTO project_memberships (org_id, project_id, user_id, role, created_at, updated_at)
         SELECT org_id, $2, user_id, 'owner', $4, $4 FROM tenant_memberships WHERE org_id = $1 AND user_id = $3",
        org.uuid(),
        project.uuid(),
        user.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn delete(
    conn: &mut Connection,
    project: ProjectId,
    user: UserId,
    version: i64,
) -> Result<Swap<()>, sqlx::Error> {
    let deleted = sqlx::query_scalar!(
        "DELETE FROM project_memberships WHERE project_id = $1 AND user_id = $2 AND version = $3 RETURNING version",
        project.uuid(),
        user.uuid(),
        version,
    )
    .fetch_optional(conn)
    .await?;
    Ok(Swap::from_update(deleted.map(|_| ()), None))
}
