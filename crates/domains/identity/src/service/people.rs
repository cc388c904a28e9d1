//! People as the platform's operators see them.

use kernel::{Failure, Page, PageQuery, ids::UserId};
use pg::{ReadTx, WriteTx};

use super::{changed, found};
use crate::{
    model::{
        events::PlatformRolesChanged,
        person::{PlatformUser, platform_roles_change},
        role::PlatformRole,
    },
    store,
};

pub async fn platform_user_list(
    tx: &mut ReadTx,
    email: Option<&str>,
    page: &PageQuery,
) -> Result<Page<PlatformUser>, Failure> {
    Ok(page.page(store::people::platform_list(tx.conn(), email, page).await?, |user| user.id.uuid()))
}

pub async fn platform_roles_set(
    tx: &mut WriteTx,
    user: UserId,
    mut roles: Vec<PlatformRole>,
) -> Result<PlatformUser, Failure> {
    roles.sort_unstable();
    roles.dedup();
    let now = tx.db().ambient().now();
    store::people::lock_platform_roles(tx.conn()).await?;
    let before = found(store::people::platform_get(tx.conn(), user).await?, "user")?;
    let others = store::people::other_admins(tx.conn(), user).await?;
    platform_roles_change(&before.platform_roles, &roles, others)?;
    store::people::set_platform_roles(tx.conn(), user, &roles, now).await?;
    let after = found(store::people::platform_get(tx.conn(), user).await?, "user")?;
    changed(tx, "user", user, &before, &after)?;
    tx.emit(&PlatformRolesChanged { user_id: user, roles })?;
    tx.invalidate(format!("user:{}", user.uuid()));
    Ok(after)
}
