//! The people to notify of something. Whoever cannot sign in any more is not among them.

use kernel::ids::{OrgId, UserId};
use pg::Connection;

use crate::model::person::Recipient;

/// Owners and administrators of an organization, and of `others` those who are members of it.
pub async fn of_org(
    conn: &mut Connection,
    org: OrgId,
    others: &[UserId],
) -> Result<Vec<Recipient>, sqlx::Error> {
    let others: Vec<_> = others.iter().map(|user| user.uuid()).collect();
    sqlx::query_as!(
        Recipient,
        "SELECT u.id AS user_id, u.name, u.email FROM tenant_memberships m JOIN users u ON u.id = m.user_id
         WHERE m.org_id = $1 AND (m.role IN ('owner', 'admin') OR m.user_id = ANY ($2))
             AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.disabled_at IS NOT NULL
                 AND u.subject = 'acct_' || replace(l.id::text, '-', ''))
         ORDER BY u.id",
        org.uuid(),
        &others,
    )
    .fetch_all(conn)
    .await
}

/// One member of an organization.
pub async fn of_member(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
) -> Result<Option<Recipient>, sqlx::Error> {
    sqlx::query_as!(
        Recipient,
        "SELECT u.id AS user_id, u.name, u.email FROM tenant_memberships m JOIN users u ON u.id = m.user_id
         WHERE m.org_id = $1 AND m.user_id = $2
             AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.disabled_at IS NOT NULL
                 AND u.subject = 'acct_' || replace(l.id::text, '-', ''))",
        org.uuid(),
        user.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// Administrators and operators of the platform.
pub async fn of_platform(conn: &mut Connection) -> Result<Vec<Recipient>, sqlx::Error> {
    sqlx::query_as!(
        Recipient,
        "SELECT u.id AS user_id, u.name, u.email FROM users u
         WHERE EXISTS (SELECT FROM platform_bindings b WHERE b.user_id = u.id AND b.role IN ('platform_admin', 'platform_ops'))
             AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.disabled_at IS NOT NULL
                 AND u.subject = 'acct_' || replace(l.id::text, '-', ''))
         ORDER BY u.id",
    )
    .fetch_all(conn)
    .await
}

/// Everybody with one of these roles on the platform.
pub async fn of_platform_roles(
    conn: &mut Connection,
    roles: &[String],
) -> Result<Vec<Recipient>, sqlx::Error> {
    sqlx::query_as!(
        Recipient,
        "SELECT u.id AS user_id, u.name, u.email FROM users u
         WHERE EXISTS (SELECT FROM platform_bindings b WHERE b.user_id = u.id AND b.role = ANY ($1))
             AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.disabled_at IS NOT NULL
                 AND u.subject = 'acct_' || replace(l.id::text, '-', ''))
         ORDER BY u.id",
        roles,
    )
    .fetch_all(conn)
    .await
}
