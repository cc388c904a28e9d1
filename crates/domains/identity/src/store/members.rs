//! Members of organizations.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery, Problem,
    ids::{OrgId, UserId},
};
use pg::{Connection, Swap};

use crate::model::{membership::Member, org::OrgContact, role::MemberRole};

/// False when the person is a member already.
pub async fn insert(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
    role: MemberRole,
    now: DateTime<Utc>,
) -> Result<bool, Failure> {
    let done = sqlx::query!(
        "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
         ON CONFLICT DO NOTHING",
        org.uuid(),
        user.uuid(),
        role.name(),
        now,
    )
    .execute(conn)
    .await
    .map_err(|error| {
        super::violated(error, &[("tenant_memberships_user_id_fkey", || Problem::not_found("user"))])
    })?;
    Ok(done.rows_affected() == 1)
}

pub async fn get(conn: &mut Connection, org: OrgId, user: UserId) -> Result<Option<Member>, sqlx::Error> {
    sqlx::query_as!(
        Member,
        r#"SELECT u.id, u.name, u.email, m.role AS "role: MemberRole", m.version, m.created_at, m.updated_at
           FROM tenant_memberships m JOIN users u ON u.id = m.user_id
           WHERE m.org_id = $1 AND m.user_id = $2"#,
        org.uuid(),
        user.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn list(conn: &mut Connection, org: OrgId, page: &PageQuery) -> Result<Vec<Member>, sqlx::Error> {
    sqlx::query_as!(
        Member,
        r#"SELECT u.id, u.name, u.email, m.role AS "role: MemberRole", m.version, m.created_at, m.updated_at
           FROM tenant_memberships m JOIN users u ON u.id = m.user_id
           WHERE m.org_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3"#,
        org.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

/// Owners first, then administrators.
pub async fn contacts(conn: &mut Connection, org: OrgId, limit: i64) -> Result<Vec<OrgContact>, sqlx::Error> {
    sqlx::query_as!(
        OrgContact,
        r#"SELECT u.name, u.email, m.role AS "role: MemberRole"
           FROM tenant_memberships m JOIN users u ON u.id = m.user_id
           WHERE m.org_id = $1 AND m.role IN ('owner', 'admin') ORDER BY m.role = 'owner' DESC, m.created_at, u.id LIMIT $2"#,
        org.uuid(),
        limit,
    )
    .fetch_all(conn)
    .await
}

/// How many owners there are, none of whom can stop being one before the transaction ends.
pub async fn lock_owners(conn: &mut Connection, org: OrgId) -> Result<i64, sqlx::Error> {
    let owners = sqlx::query_scalar!(
        "SELECT user_id FROM tenant_memberships WHERE org_id = $1 AND role = 'owner' ORDER BY user_id FOR UPDATE",
        org.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(i64::try_from(owners.len()).unwrap_or(i64::MAX))
}

/// `expected` is the role on which the change was decided.
pub async fn set_role(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
    expected: &Member,
    role: MemberRole,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<()>, sqlx::Error> {
    let updated = sqlx::query_scalar!(
        "UPDATE tenant_memberships SET role = $3, version = version + 1, updated_at = $4
         WHERE org_id = $1 AND user_id = $2 AND version = coalesce($5, version) AND version = $6
         RETURNING version",
        org.uuid(),
        user.uuid(),
        role.name(),
        now,
        if_match,
        expected.version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, org, user, updated.map(|_| ())).await
}

pub async fn delete(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
    expected: &Member,
    if_match: Option<i64>,
) -> Result<Swap<()>, sqlx::Error> {
    let deleted = sqlx::query_scalar!(
        "DELETE FROM tenant_memberships
         WHERE org_id = $1 AND user_id = $2 AND version = coalesce($3, version) AND version = $4
         RETURNING version",
        org.uuid(),
        user.uuid(),
        if_match,
        expected.version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, org, user, deleted.map(|_| ())).await
}

async fn swap<T>(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
    updated: Option<T>,
) -> Result<Swap<T>, sqlx::Error> {
    let current = match updated {
        Some(_) => None,
        None => {
            sqlx::query_scalar!(
                "SELECT version FROM tenant_memberships WHERE org_id = $1 AND user_id = $2",
                org.uuid(),
                user.uuid(),
            )
            .fetch_optional(conn)
            .await?
        }
    };
    Ok(Swap::from_update(updated, current))
}

pub async fn has_member_with_email(
    conn: &mut Connection,
    org: OrgId,
    email: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM users u JOIN tenant_memberships m ON m.user_id = u.id
           WHERE m.org_id = $1 AND lower(u.email) = lower($2)) AS "exists!""#,
        org.uuid(),
        email,
    )
    .fetch_one(conn)
    .await
}
