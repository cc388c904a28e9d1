//! People and their platform roles.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{LocalAccountId, UserId},
};
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::{
    person::{PlatformUser, User},
    role::PlatformRole,
};

pub async fn get(conn: &mut Connection, id: UserId) -> Result<Option<User>, sqlx::Error> {
    sqlx::query_as!(
        User,
        "SELECT id, name, email, version, created_at, updated_at FROM users WHERE id = $1",
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn rename(
    conn: &mut Connection,
    id: UserId,
    name: Option<&str>,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<User>, sqlx::Error> {
    let updated = sqlx::query_as!(
        User,
        "UPDATE users SET name = coalesce($2, name), version = version + 1, updated_at = $4
         WHERE id = $1 AND version = coalesce($3, version)
         RETURNING id, name, email, version, created_at, updated_at",
        id.uuid(),
        name,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match updated {
        Some(_) => None,
        None => get(conn, id).await?.map(|user| user.version),
    };
    Ok(Swap::from_update(updated, current))
}

struct Row {
    id: Uuid,
    name: String,
    email: Option<String>,
    issuer: String,
    subject: String,
    roles: Vec<String>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for PlatformUser {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            email: row.email,
            issuer: row.issuer,
            subject: row.subject,
            platform_roles: row.roles.iter().filter_map(|name| name.parse().ok()).collect(),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn platform_list(
    conn: &mut Connection,
    email: Option<&str>,
    page: &PageQuery,
) -> Result<Vec<PlatformUser>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, name, email, issuer, subject, version, created_at, updated_at,
               ARRAY(SELECT role FROM platform_bindings b WHERE b.user_id = u.id ORDER BY role) AS "roles!"
           FROM users u WHERE id > $1 AND ($3::text IS NULL OR lower(email) = lower($3)) ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
        email,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(PlatformUser::from).collect())
}

pub async fn platform_get(conn: &mut Connection, id: UserId) -> Result<Option<PlatformUser>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, email, issuer, subject, version, created_at, updated_at,
               ARRAY(SELECT role FROM platform_bindings b WHERE b.user_id = u.id ORDER BY role) AS "roles!"
           FROM users u WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PlatformUser::from))
}

/// Nobody else can change a platform role before the transaction ends.
pub async fn lock_platform_roles(conn: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query!("LOCK TABLE platform_bindings IN SHARE ROW EXCLUSIVE MODE").execute(conn).await?;
    Ok(())
}

/// How many others administer the platform and can sign in: one whose local account is disabled does not
/// count.
pub async fn other_admins(conn: &mut Connection, id: UserId) -> Result<i64, sqlx::Error> {
    let subjects = sqlx::query_scalar!(
        "SELECT u.subject FROM platform_bindings b JOIN users u ON u.id = b.user_id
         WHERE b.role = 'platform_admin' AND b.user_id <> $1",
        id.uuid(),
    )
    .fetch_all(&mut *conn)
    .await?;
    let accounts = subjects.iter().filter_map(|subject| subject.parse::<LocalAccountId>().ok());
    let disabled = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM local_accounts WHERE id = ANY ($1) AND disabled_at IS NOT NULL"#,
        &accounts.map(LocalAccountId::uuid).collect::<Vec<_>>(),
    )
    .fetch_one(conn)
    .await?;
    Ok(i64::try_from(subjects.len()).unwrap_or(i64::MAX) - disabled)
}

/// Whether anybody else is bound as an administrator, able to sign in or not.
pub async fn others_bound_as_admin(conn: &mut Connection, id: UserId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM platform_bindings WHERE role = 'platform_admin' AND user_id <> $1) AS "others!""#,
        id.uuid(),
    )
    .fetch_one(conn)
    .await
}

pub async fn set_platform_roles(
    conn: &mut Connection,
    id: UserId,
    roles: &[PlatformRole],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let names: Vec<String> = roles.iter().map(|role| role.name().to_owned()).collect();
    sqlx::query!(
        "DELETE FROM platform_bindings WHERE user_id = $1 AND role <> ALL ($2::text[])",
        id.uuid(),
        &names,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "INSERT INTO platform_bindings (user_id, role, created_at) SELECT $1, role, $3 FROM unnest($2::text[]) AS r (role)
         ON CONFLICT DO NOTHING",
        id.uuid(),
        &names,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The address of somebody: `None` when there is no such person, `Some(None)` when they have none.
pub async fn email(conn: &mut Connection, user: UserId) -> Result<Option<Option<String>>, sqlx::Error> {
    sqlx::query_scalar!("SELECT email FROM users WHERE id = $1", user.uuid()).fetch_optional(conn).await
}
