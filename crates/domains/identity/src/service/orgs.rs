//! Organizations: founding, renaming, suspending.

use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{OrgId, ProjectId, UserId},
    text::{Name, Reason, Slug},
};
use pg::{Connection, ReadTx, WriteTx};

use super::{changed, created, found};
use crate::{
    model::{
        events::{MemberAdded, OrgCreated, OrgResumed, OrgSuspended, ProjectCreated},
        org::{Org, OrgDetails, OrgKind, OrgMembership},
        project::DEFAULT_PROJECT,
        role::MemberRole,
    },
    store,
};

/// Somebody who needs access asks one of them; more would only be read past.
const CONTACTS_SHOWN: i64 = 10;

/// A new enterprise organization with its first owner and the project `default`, which that owner owns too.
pub async fn org_create(tx: &mut WriteTx, name: Name, slug: Slug, owner: UserId) -> Result<Org, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<OrgId>());
    let project_id = tx.db().ambient().id::<ProjectId>();
    if store::people::get(tx.conn(), owner).await?.is_none() {
        return Err(Problem::field("owner_user_id", "there is no such user").into());
    }
    let org =
        store::orgs::insert(tx.conn(), id, OrgKind::Enterprise, slug.as_str(), name.as_str(), now).await?;
    store::members::insert(tx.conn(), id, owner, MemberRole::Owner, now).await?;
    store::projects::insert(tx.conn(), id, project_id, DEFAULT_PROJECT, DEFAULT_PROJECT, now).await?;
    store::project_members::insert_creator(tx.conn(), id, project_id, owner, now).await?;
    tx.audit_in_org(id);
    created(tx, "organization", id, &org)?;
    tx.emit(&OrgCreated { org_id: id, slug: slug.into_string(), owner_id: owner })?;
    tx.emit(&MemberAdded { org_id: id, user_id: owner, role: MemberRole::Owner })?;
    tx.emit(&ProjectCreated { org_id: id, project_id, slug: DEFAULT_PROJECT.to_owned() })?;
    tx.invalidate(format!("user:{}", owner.uuid()));
    tx.invalidate(format!("org:{}", id.uuid()));
    Ok(org)
}

pub async fn org_get(tx: &mut ReadTx, id: OrgId) -> Result<Org, Failure> {
    Ok(found(store::orgs::get(tx.conn(), id).await?, "organization")?)
}

/// With the people to ask for access, who are among the members that every member may see.
pub async fn org_get_details(tx: &mut ReadTx, id: OrgId) -> Result<OrgDetails, Failure> {
    let org = org_get(tx, id).await?;
    Ok(OrgDetails { org, contacts: store::members::contacts(tx.conn(), id, CONTACTS_SHOWN).await? })
}

/// For other domains, in a transaction of theirs; nothing when there is no such organization.
pub async fn org_find(conn: &mut Connection, id: OrgId) -> Result<Option<Org>, Failure> {
    Ok(store::orgs::get(conn, id).await?)
}

/// All organizations; for the platform.
pub async fn org_list(tx: &mut ReadTx, page: &PageQuery) -> Result<Page<Org>, Failure> {
    Ok(page.page(store::orgs::list(tx.conn(), page).await?, |org| org.id.uuid()))
}

pub async fn org_list_of(
    tx: &mut ReadTx,
    user: UserId,
    page: &PageQuery,
) -> Result<Page<OrgMembership>, Failure> {
    let orgs = store::orgs::list_of_user(tx.conn(), user, page.after(), page.limit()).await?;
    Ok(page.page(orgs, |org| org.id.uuid()))
}

pub async fn org_update(
    tx: &mut WriteTx,
    id: OrgId,
    name: Option<Name>,
    if_match: Option<i64>,
) -> Result<Org, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::orgs::get_for_update(tx.conn(), id).await?, "organization")?;
    let name = name.as_ref().map(Name::as_str);
    let after = store::orgs::rename(tx.conn(), id, name, if_match, now).await?.or_problem("organization")?;
    changed(tx, "organization", id, &before, &after)?;
    tx.invalidate(format!("org:{}", id.uuid()));
    Ok(after)
}

pub async fn org_suspend(tx: &mut WriteTx, id: OrgId, reason: Reason) -> Result<Org, Failure> {
    let org = set_suspension(tx, id, Some(reason.as_str())).await?;
    tx.emit(&OrgSuspended { org_id: id, reason: reason.into_string() })?;
    Ok(org)
}

pub async fn org_resume(tx: &mut WriteTx, id: OrgId) -> Result<Org, Failure> {
    let org = set_suspension(tx, id, None).await?;
    tx.emit(&OrgResumed { org_id: id })?;
    Ok(org)
}

async fn set_suspension(tx: &mut WriteTx, id: OrgId, reason: Option<&str>) -> Result<Org, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::orgs::get_for_update(tx.conn(), id).await?, "organization")?;
    before.check_suspension(reason.is_some())?;
    let swap = store::orgs::set_suspension(tx.conn(), id, reason, before.version, now).await?;
    let after = swap.or_problem("organization")?;
    tx.audit_in_org(id);
    changed(tx, "organization", id, &before, &after)?;
    tx.invalidate(format!("org:{}", id.uuid()));
    Ok(after)
}

/// Refuses what only an enterprise organization can have.
pub(super) async fn check_takes_members(tx: &mut WriteTx, id: OrgId) -> Result<(), Failure> {
    let org = store::orgs::get(tx.conn(), id).await?.ok_or_else(|| Problem::from_code(Code::NotFound))?;
    Ok(org.kind.takes_members()?)
}
