//! The signed-in person.

use kernel::Role;
use kernel::{
    Failure,
    ids::{ProjectId, SessionId, UserId},
    text::Name,
};
use pg::{ReadTx, WriteTx};
use uuid::Uuid;

use super::{changed, found};
use crate::{
    model::{
        person::{Me, ProjectRole, User},
        role::{MemberRole, PlatformRole},
    },
    store,
};

/// More organizations than this are listed page by page elsewhere.
const ORGS_SHOWN: i64 = 200;

/// What the caller's token and grants say of them.
pub struct CallerGrants {
    pub user: UserId,
    pub session: SessionId,
    pub platform: Vec<Role>,
    pub projects: Vec<(ProjectId, Role)>,
}

pub async fn me_get(tx: &mut ReadTx, caller: CallerGrants) -> Result<Me, Failure> {
    let user = found(store::people::get(tx.conn(), caller.user).await?, "user")?;
    let orgs = store::orgs::list_of_user(tx.conn(), caller.user, Uuid::nil(), ORGS_SHOWN).await?;
    let role_in =
        |(id, role): (ProjectId, Role)| MemberRole::from_role(role).map(|role| ProjectRole { id, role });
    let mut projects: Vec<ProjectRole> = caller.projects.into_iter().filter_map(role_in).collect();
    projects.sort_by_key(|project| project.id);
    Ok(Me {
        user,
        session_id: caller.session,
        platform_roles: caller.platform.into_iter().filter_map(PlatformRole::from_role).collect(),
        orgs,
        projects,
    })
}

pub async fn me_update(
    tx: &mut WriteTx,
    user: UserId,
    name: Option<Name>,
    if_match: Option<i64>,
) -> Result<User, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::people::get(tx.conn(), user).await?, "user")?;
    let name = name.as_ref().map(Name::as_str);
    let after = store::people::rename(tx.conn(), user, name, if_match, now).await?.or_problem("user")?;
    changed(tx, "user", user, &before, &after)?;
    Ok(after)
}
