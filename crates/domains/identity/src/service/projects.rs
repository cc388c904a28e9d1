//! Projects.

use kernel::{
    Failure, Page, PageQuery,
    ids::{OrgId, ProjectId, UserId},
    text::{Name, Slug},
};
use pg::{ReadTx, WriteTx};

use super::{changed, created, found, removed};
use crate::{
    model::{
        events::{ProjectCreated, ProjectDeleted},
        project::Project,
    },
    store,
};

/// The creator owns the project, when they belong to the organization (a platform admin may not).
/// Whoever may create a project administers it already, by their role in the organization; a membership of
/// its own would only make the list of what they belong to grow with every project.
pub async fn project_create(
    tx: &mut WriteTx,
    org: OrgId,
    name: Name,
    slug: Slug,
) -> Result<Project, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<ProjectId>());
    let project = store::projects::insert(tx.conn(), org, id, slug.as_str(), name.as_str(), now).await?;
    created(tx, "project", id, &project)?;
    tx.emit(&ProjectCreated { org_id: org, project_id: id, slug: slug.into_string() })?;
    Ok(project)
}

pub async fn project_get(tx: &mut ReadTx, org: OrgId, id: ProjectId) -> Result<Project, Failure> {
    Ok(found(store::projects::get(tx.conn(), org, id).await?, "project")?)
}

/// All projects of the organization, or only those in which `only_of` has a role.
pub async fn project_list(
    tx: &mut ReadTx,
    org: OrgId,
    only_of: Option<UserId>,
    page: &PageQuery,
) -> Result<Page<Project>, Failure> {
    Ok(page.page(store::projects::list(tx.conn(), org, only_of, page).await?, |project| project.id.uuid()))
}

pub async fn project_update(
    tx: &mut WriteTx,
    org: OrgId,
    id: ProjectId,
    name: Option<Name>,
    if_match: Option<i64>,
) -> Result<Project, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::projects::get(tx.conn(), org, id).await?, "project")?;
    let name = name.as_ref().map(Name::as_str);
    let swap = store::projects::update(tx.conn(), org, id, name, if_match, now).await?;
    let after = swap.or_problem("project")?;
    changed(tx, "project", id, &before, &after)?;
    Ok(after)
}

/// Refused, with names, while anything lives in the project.
pub async fn project_delete(
    tx: &mut WriteTx,
    org: OrgId,
    id: ProjectId,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    let residents = store::projects::lock_and_find_residents(tx.conn(), org, id).await?;
    found(residents, "project")?.check_empty()?;
    let before = store::projects::delete(tx.conn(), org, id, if_match).await?.or_problem("project")?;
    removed(tx, "project", id, &before)?;
    tx.emit(&ProjectDeleted { org_id: org, project_id: id })?;
    tx.invalidate(format!("project:{}", id.uuid()));
    tx.invalidate("policy".to_owned());
    Ok(())
}
