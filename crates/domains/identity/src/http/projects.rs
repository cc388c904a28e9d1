//! Projects.

use endpoint::{
    Created, Empty, Endpoint, In, Json, NoContent, OrgPath, ProjectPath, ScopeKind, Write, delete, get,
    patch, post,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    text::{Name, Slug},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    model::project::Project,
    service::projects::{project_create, project_delete, project_get, project_list, project_update},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/projects", "project_list", "List the projects of an organization")
            .describe("Members who may not read every project see those in which they have a role.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::ProjectList)
            .handle(identity.clone(), list),
        post("/api/v1/orgs/{org_id}/projects", "project_create", "Create a project")
            .in_scope(ScopeKind::Org)
            .errors(&[Code::AlreadyExists])
            .needs(Permission::ProjectCreate)
            .audited("project.create")
            .handle(identity.clone(), create),
        get("/api/v1/projects/{project_id}", "project_get", "Show a project")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ProjectRead)
            .handle(identity.clone(), show),
        patch("/api/v1/projects/{project_id}", "project_update", "Rename a project")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::Conflict])
            .needs(Permission::ProjectUpdate)
            .audited("project.update")
            .handle(identity.clone(), update),
        delete("/api/v1/projects/{project_id}", "project_delete", "Delete a project")
            .describe("Refused while it contains resources; the error lists them and what to do.")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::InUse, Code::Conflict])
            .needs(Permission::ProjectDelete)
            .audited("project.delete")
            .handle(identity.clone(), remove),
    ]
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Project>>, Failure> {
    let only_of = match input.access.permissions().holds(Permission::ProjectRead) {
        true => None,
        false => Some(input.access.user()?),
    };
    Ok(Json(project_list(&mut tx, input.path.org_id, only_of, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProjectCreate {
    name: Name,
    slug: Slug,
}

async fn create(
    _: Identity,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<ProjectCreate>>,
) -> Result<Created<Project>, Failure> {
    let body = input.body.0;
    Ok(Created(project_create(&mut tx, input.path.org_id, body.name, body.slug).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<ProjectPath, Empty, ()>,
) -> Result<Json<Project>, Failure> {
    Ok(Json(project_get(&mut tx, input.access.org()?, input.path.project_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProjectUpdate {
    #[serde(default)]
    name: Given<Name>,
}

async fn update(
    _: Identity,
    mut tx: Write,
    input: In<ProjectPath, Empty, Json<ProjectUpdate>>,
) -> Result<Json<Project>, Failure> {
    let (org, project) = (input.access.org()?, input.path.project_id);
    Ok(Json(project_update(&mut tx, org, project, input.body.0.name.0, input.if_match).await?))
}

async fn remove(_: Identity, mut tx: Write, input: In<ProjectPath, Empty, ()>) -> Result<NoContent, Failure> {
    project_delete(&mut tx, input.access.org()?, input.path.project_id, input.if_match).await?;
    Ok(NoContent)
}
