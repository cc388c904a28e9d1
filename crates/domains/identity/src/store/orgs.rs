//! Organizations.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, UserId},
};
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::{
    org::{Org, OrgKind, OrgMembership, OrgState},
    role::MemberRole,
};

pub async fn insert(
    conn: &mut Connection,
    id: OrgId,
    kind: OrgKind,
    slug: &str,
    name: &str,
    now: DateTime<Utc>,
) -> Result<Org, Failure> {
    sqlx::query_as!(
        Org,
        r#"INSERT INTO organizations (id, kind, slug, name, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
           RETURNING id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at,
               suspended_reason, version, created_at, updated_at"#,
        id.uuid(),
        kind.name(),
        slug,
        name,
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        super::violated(
            error,
            &[("organizations_slug_key", || {
                Problem::new(Code::AlreadyExists, "The slug is already in use.").detail("field", "slug")
            })],
        )
    })
}

pub async fn get(conn: &mut Connection, id: OrgId) -> Result<Option<Org>, sqlx::Error> {
    sqlx::query_as!(
        Org,
        r#"SELECT id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at, suspended_reason, version,
               created_at, updated_at
           FROM organizations WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// The organization's row, held until the transaction ends.
pub async fn get_for_update(conn: &mut Connection, id: OrgId) -> Result<Option<Org>, sqlx::Error> {
    sqlx::query_as!(
        Org,
        r#"SELECT id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at, suspended_reason, version,
               created_at, updated_at
           FROM organizations WHERE id = $1 FOR UPDATE"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(conn: &mut Connection, page: &PageQuery) -> Result<Vec<Org>, sqlx::Error> {
    sqlx::query_as!(
        Org,
        r#"SELECT id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at, suspended_reason, version,
               created_at, updated_at
           FROM organizations WHERE id > $1 ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

pub async fn list_of_user(
    conn: &mut Connection,
    user: UserId,
    after: Uuid,
    limit: i64,
) -> Result<Vec<OrgMembership>, sqlx::Error> {
    sqlx::query_as!(
        OrgMembership,
        r#"SELECT o.id, o.name, o.slug, o.kind AS "kind: OrgKind", o.state AS "state: OrgState", m.role AS "role: MemberRole",
               o.version, o.created_at, o.updated_at
           FROM tenant_memberships m JOIN organizations o ON o.id = m.org_id
           WHERE m.user_id = $1 AND m.org_id > $2 ORDER BY m.org_id LIMIT $3"#,
        user.uuid(),
        after,
        limit,
    )
    .fetch_all(conn)
    .await
}

pub async fn rename(
    conn: &mut Connection,
    id: OrgId,
    name: Option<&str>,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Org>, sqlx::Error> {
    let updated = sqlx::query_as!(
        Org,
        r#"UPDATE organizations SET name = coalesce($2, name), version = version + 1, updated_at = $4
           WHERE id = $1 AND version = coalesce($3, version)
           RETURNING id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at,
               suspended_reason, version, created_at, updated_at"#,
        id.uuid(),
        name,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, id, updated).await
}

/// `reason` suspends; none resumes.
pub async fn set_suspension(
    conn: &mut Connection,
    id: OrgId,
    reason: Option<&str>,
    version: i64,
    now: DateTime<Utc>,
) -> Result<Swap<Org>, sqlx::Error> {
    let updated = sqlx::query_as!(
        Org,
        r#"UPDATE organizations SET suspended_at = $2, suspended_reason = $3, version = version + 1, updated_at = $4
           WHERE id = $1 AND version = $5
           RETURNING id, name, slug, kind AS "kind: OrgKind", state AS "state: OrgState", suspended_at,
               suspended_reason, version, created_at, updated_at"#,
        id.uuid(),
        reason.map(|_| now),
        reason,
        now,
        version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, id, updated).await
}

async fn swap(conn: &mut Connection, id: OrgId, updated: Option<Org>) -> Result<Swap<Org>, sqlx::Error> {
    let current = match updated {
        Some(_) => None,
        None => {
            sqlx::query_scalar!("SELECT version FROM organizations WHERE id = $1", id.uuid())
                .fetch_optional(conn)
                .await?
        }
    };
    Ok(Swap::from_update(updated, current))
}
