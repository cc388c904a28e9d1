//! Members of a project.

use endpoint::{Empty, Endpoint, In, Json, NoContent, ProjectPath, ScopeKind, Write, delete, get, put};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{ProjectId, UserId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Identity,
    model::{membership::ProjectMember, role::MemberRole},
    service::project_members::{project_member_list, project_member_remove, project_member_set},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/projects/{project_id}/members", "project_member_list", "List the members of a project")
            .describe("Owners, admins and viewers of the organization have access to its projects without being listed here.")
            .in_scope(ScopeKind::Project)
            .needs(Permission::ProjectMemberRead)
            .handle(identity.clone(), list),
        put("/api/v1/projects/{project_id}/members/{user_id}", "project_member_set", "Grant a user a role in a project")
            .describe("Only for members of the organization; a caller cannot grant or revoke a role above their own.")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::OwnershipRequired, Code::Conflict])
            .needs(Permission::ProjectMemberManage)
            .audited("project_member.set")
            .handle(identity.clone(), set),
        delete("/api/v1/projects/{project_id}/members/{user_id}", "project_member_remove", "Remove a user from a project")
            .in_scope(ScopeKind::Project)
            .errors(&[Code::OwnershipRequired, Code::Conflict])
            .needs(Permission::ProjectMemberManage)
            .audited("project_member.remove")
            .handle(identity.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ProjectMemberPath {
    project_id: ProjectId,
    user_id: UserId,
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<ProjectPath, PageQuery, ()>,
) -> Result<Json<Page<ProjectMember>>, Failure> {
    Ok(Json(project_member_list(&mut tx, input.path.project_id, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProjectMemberPut {
    role: MemberRole,
}

async fn set(
    _: Identity,
    mut tx: Write,
    input: In<ProjectMemberPath, Empty, Json<ProjectMemberPut>>,
) -> Result<Json<ProjectMember>, Failure> {
    let place = (input.access.org()?, input.path.project_id);
    let (role, roles) = (input.body.0.role, input.access.roles());
    Ok(Json(project_member_set(&mut tx, place, input.path.user_id, role, input.if_match, roles).await?))
}

async fn remove(
    _: Identity,
    mut tx: Write,
    input: In<ProjectMemberPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let roles = input.access.roles();
    project_member_remove(&mut tx, input.path.project_id, input.path.user_id, input.if_match, roles).await?;
    Ok(NoContent)
}
