//! Who may log in to an allocation besides its creator.

use endpoint::{
    Accepted, Created, Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, post,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{AllocationId, ProjectId, UserId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{allocations::AllocationPath, operations::asked};
use crate::{
    Capacity,
    model::{access::Grant, allocation::AllocationView},
    service::{
        access::{access_refresh, grant_create, grant_delete, grant_list},
        release::Asked,
    },
};

const ERRORS: &[Code] = &[
    Code::Conflict,
    Code::InvalidTransition,
    Code::OwnershipRequired,
    Code::AlreadyExists,
    Code::Unprocessable,
];

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/grants",
            "allocation_grant_list",
            "List users who may log in besides the creator",
        )
        .in_scope(ScopeKind::Project)
        .needs(Permission::AllocationRead)
        .handle(capacity.clone(), list),
        post(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/grants",
            "allocation_grant_create",
            "Grant a user access to an allocation",
        )
        .describe(
            "Only users with access to the project, with their own SSH keys. `access_current` of the \
             allocation is true once the keys are on the machine.",
        )
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.grant_create")
        .handle(capacity.clone(), create),
        delete(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/grants/{user_id}",
            "allocation_grant_delete",
            "Revoke a user's access to an allocation",
        )
        .describe("Their keys are removed from the machine; `access_current` is true once this is done. Open sessions are not closed.")
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.grant_delete")
        .handle(capacity.clone(), remove),
        post(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/access/refresh",
            "allocation_access_refresh",
            "Install the current SSH keys of its users on the machine",
        )
        .describe("For example after a user added or deleted SSH keys, or left the project.")
        .in_scope(ScopeKind::Project)
        .errors(ERRORS)
        .needs(Permission::AllocationOperate)
        .audited("allocation.access_refresh")
        .handle(capacity.clone(), refresh),
    ]
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<AllocationPath, PageQuery, ()>,
) -> Result<Json<Page<Grant>>, Failure> {
    let path = &input.path;
    Ok(Json(grant_list(&mut tx, path.project_id, path.allocation_id, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AccessGrantCreate {
    user_id: UserId,
}

async fn create(
    capacity: Capacity,
    mut tx: Write,
    input: In<AllocationPath, Empty, Json<AccessGrantCreate>>,
) -> Result<Created<Grant>, Failure> {
    let by = input.access.user()?;
    let grant = grant_create(&capacity, &mut tx, asked(&input), by, input.body.0.user_id).await?;
    Ok(Created(grant))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct GrantPath {
    project_id: ProjectId,
    allocation_id: AllocationId,
    user_id: UserId,
}

async fn remove(
    capacity: Capacity,
    mut tx: Write,
    input: In<GrantPath, Empty, ()>,
) -> Result<NoContent, Failure> {
    let asked = Asked {
        project: input.path.project_id,
        allocation: input.path.allocation_id,
        any: input.access.permissions().holds(Permission::AllocationOperateAny),
        if_match: input.if_match,
    };
    grant_delete(&capacity, &mut tx, asked, input.path.user_id).await?;
    Ok(NoContent)
}

async fn refresh(
    capacity: Capacity,
    mut tx: Write,
    input: In<AllocationPath, Empty, ()>,
) -> Result<Accepted<AllocationView>, Failure> {
    Ok(Accepted(access_refresh(&capacity, &mut tx, asked(&input)).await?.into()))
}
