//! The people whom other domains notify of something. Whoever cannot sign in any more is not among them.

use kernel::{
    Failure, Permission, Role,
    ids::{OrgId, UserId},
};
use pg::Connection;

use crate::{model::person::Recipient, store};

/// Owners and administrators of an organization, and of `others` those who are members of it.
pub async fn org_recipients(
    conn: &mut Connection,
    org: OrgId,
    others: &[UserId],
) -> Result<Vec<Recipient>, Failure> {
    Ok(store::recipients::of_org(conn, org, others).await?)
}

/// One member of an organization; nobody when they left it.
pub async fn member_recipient(
    conn: &mut Connection,
    org: OrgId,
    user: UserId,
) -> Result<Option<Recipient>, Failure> {
    Ok(store::recipients::of_member(conn, org, user).await?)
}

/// Administrators and operators of the platform.
pub async fn platform_recipients(conn: &mut Connection) -> Result<Vec<Recipient>, Failure> {
    Ok(store::recipients::of_platform(conn).await?)
}

/// Everybody whose role on the platform holds a permission.
pub async fn permission_recipients(
    conn: &mut Connection,
    permission: Permission,
) -> Result<Vec<Recipient>, Failure> {
    let holds = |role: &&Role| role.permissions().holds(permission);
    let roles: Vec<String> = Role::ALL.iter().filter(holds).map(|role| role.name().to_owned()).collect();
    Ok(store::recipients::of_platform_roles(conn, &roles).await?)
}
