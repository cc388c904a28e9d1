//! People as the platform's operators see them.

use kernel::{Failure, Page, PageQuery, ids::UserId};
use pg::{ReadTx, WriteTx};

use super::{changed, found, sensitive_changes::made_alone};
use crate::{
    model::{
        events::PlatformRolesChanged,
        person::{PlatformUser, platform_roles_change},
        role::PlatformRole,
        sensitive_change::{SecondPerson, check_appoint_alone, may_approve},
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

/// Sets the platform roles of somebody, as one person may: giving the right to approve takes two.
pub async fn platform_roles_set(
    tx: &mut WriteTx,
    user: UserId,
    roles: Vec<PlatformRole>,
) -> Result<PlatformUser, Failure> {
    store::people::lock_platform_roles(tx.conn()).await?;
    let before = found(store::people::platform_get(tx.conn(), user).await?, "user")?;
    let (had, has) = (may_approve(&before.platform_roles), may_approve(&roles));
    if has && !had {
        let by = UserId::from(tx.permit().actor().id.unwrap_or_default());
        let others = store::people::others_bound_as_admin(tx.conn(), by).await?;
        check_appoint_alone(others, store::sensitive_changes::approvers_changed(tx.conn()).await?)?;
    }
    if had != has {
        made_alone(tx, user, &roles).await?;
    }
    store_roles(tx, user, roles).await
}

/// Sets roles that give the right to approve.
pub(super) async fn platform_roles_apply(
    tx: &mut WriteTx,
    _: SecondPerson,
    user: UserId,
    roles: Vec<PlatformRole>,
) -> Result<PlatformUser, Failure> {
    store::people::lock_platform_roles(tx.conn()).await?;
    store_roles(tx, user, roles).await
}

async fn store_roles(
    tx: &mut WriteTx,
    user: UserId,
    mut roles: Vec<PlatformRole>,
) -> Result<PlatformUser, Failure> {
    roles.sort_unstable();
    roles.dedup();
    let now = tx.db().ambient().now();
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
