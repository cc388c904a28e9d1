//! The signed-in person.

use endpoint::Caller;
use kernel::{
    CorrelationId, Failure, Role,
    ids::{ProjectId, SessionId, UserId},
    principal::PrincipalKind,
    text::Name,
};
use pg::{Db, Origin, Permit, ReadTx, WriteTx};
use uuid::Uuid;

use super::{changed, found};
use crate::{
    model::{
        person::{Me, ProjectRole, User, WhoAmI},
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

/// Who the token stands for. A machine is read with the rights of the system: as somebody who belongs to no organization it
/// could not read its own row.
pub async fn whoami_get(db: &Db, tx: &mut ReadTx, caller: &Caller) -> Result<WhoAmI, Failure> {
    match caller {
        Caller::User { id, grants, .. } => {
            let user = found(store::people::get(tx.conn(), *id).await?, "user")?;
            Ok(WhoAmI {
                kind: PrincipalKind::User,
                id: caller.principal(),
                name: user.name,
                email: user.email,
                roles: grants.platform.iter().map(|role| role.name().to_owned()).collect(),
                org_id: None,
                org_name: None,
                project_id: None,
                project_name: None,
                key_id: None,
                token_expires_at: None,
            })
        }
        Caller::ServiceAccount { id, org, project, role, key, token_expires_at } => {
            let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
            let permit = Permit::system("a service account asks who it is", origin);
            let mut read = db.read(&permit).await?;
            let names = found(store::service_accounts::names(read.conn(), *id).await?, "service_account")?;
            Ok(WhoAmI {
                kind: PrincipalKind::ServiceAccount,
                id: caller.principal(),
                name: names.name,
                email: None,
                roles: vec![role.name().to_owned()],
                org_id: Some(*org),
                org_name: Some(names.org_name),
                project_id: Some(*project),
                project_name: Some(names.project_name),
                key_id: Some(*key),
                token_expires_at: Some(*token_expires_at),
            })
        }
    }
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
