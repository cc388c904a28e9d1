//! Members of a project.

use kernel::{
    Code, Failure, Page, PageQuery, Problem, Role,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{ReadTx, WriteTx};

use super::{found, removed};
use crate::{
    model::{
        events::{ProjectMemberRemoved, ProjectMemberSet},
        membership::ProjectMember,
        role::{Authority, MemberRole},
    },
    store,
};

pub async fn project_member_list(
    tx: &mut ReadTx,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Page<ProjectMember>, Failure> {
    Ok(page.page(store::project_members::list(tx.conn(), project, page).await?, |member| member.id.uuid()))
}

/// Gives a member of the organization a role in the project, or changes it.
pub async fn project_member_set(
    tx: &mut WriteTx,
    (org, project): (OrgId, ProjectId),
    user: UserId,
    role: MemberRole,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<ProjectMember, Failure> {
    let now = tx.db().ambient().now();
    let authority = Authority::in_project(actor);
    let current = store::project_members::lock(tx.conn(), project, user).await?;
    check_version(current.map(|(_, version)| version), if_match)?;
    if let Some((held, _)) = current {
        authority.reaches(held)?;
    }
    authority.reaches(role)?;
    let before = store::project_members::get(tx.conn(), project, user).await?;
    if current.is_some() {
        store::project_members::update(tx.conn(), project, user, role, now).await?;
    } else if !store::project_members::insert(tx.conn(), org, project, user, role, now).await? {
        // Their role was not there to be compared with the caller's authority.
        return Err(Problem::new(Code::Conflict, "Somebody else added this member just now.").into());
    }
    let after = found(store::project_members::get(tx.conn(), project, user).await?, "member")?;
    tx.record("project_member", user, before.as_ref(), Some(&after))?;
    tx.emit(&ProjectMemberSet { project_id: project, user_id: user, role })?;
    tx.invalidate(format!("user:{}", user.uuid()));
    Ok(after)
}

pub async fn project_member_remove(
    tx: &mut WriteTx,
    project: ProjectId,
    user: UserId,
    if_match: Option<i64>,
    actor: &[Role],
) -> Result<(), Failure> {
    let (held, version) = found(store::project_members::lock(tx.conn(), project, user).await?, "member")?;
    check_version(Some(version), if_match)?;
    Authority::in_project(actor).reaches(held)?;
    let before = store::project_members::get(tx.conn(), project, user).await?;
    store::project_members::delete(tx.conn(), project, user, version).await?.or_problem("member")?;
    removed(tx, "project_member", user, &before)?;
    tx.emit(&ProjectMemberRemoved { project_id: project, user_id: user })?;
    tx.invalidate(format!("user:{}", user.uuid()));
    Ok(())
}

fn check_version(current: Option<i64>, if_match: Option<i64>) -> Result<(), Problem> {
    match (if_match, current) {
        (Some(expected), Some(current)) if expected != current => Err(Problem::version_conflict(current)),
        (Some(_), None) => Err(Problem::not_found("member")),
        _ => Ok(()),
    }
}
