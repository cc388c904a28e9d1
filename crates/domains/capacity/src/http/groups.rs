//! `/projects/{project_id}/allocation-groups`: several allocations, all or none.

use endpoint::{Accepted, Empty, Endpoint, Given, In, Json, ProjectPath, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{GroupId, ProjectId},
    text::{Name, Term},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::allocations::{LAUNCH_ERRORS, creator};
use crate::{
    Capacity,
    model::{
        group::{Group, GroupDetail},
        sku::{ProfileName, SkuCode},
    },
    service::{
        groups,
        launch::{ImageName, Wanted},
    },
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/projects/{project_id}/allocation-groups";
    const ONE: &str = "/api/v1/projects/{project_id}/allocation-groups/{group_id}";
    vec![
        post(ALL, "allocation_group_create", "Launch several machines together")
            .describe(
                "All members are reserved in one region, or none is. If the launch of one member fails \
                 later, the others are released.",
            )
            .in_scope(ScopeKind::Project)
            .errors(LAUNCH_ERRORS)
            .needs(Permission::AllocationCreate)
            .audited("allocation_group.create")
            .idempotency_required()
            .handle(capacity.clone(), create),
        get(ALL, "allocation_group_list", "List groups of allocations")
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), list),
        get(ONE, "allocation_group_get", "Show a group with its members")
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), show),
        post(
            "/api/v1/projects/{project_id}/allocation-groups/{group_id}/release",
            "allocation_group_release",
            "Release all members of a group",
        )
        .describe("Members that are already being released are not affected. Idempotent.")
        .in_scope(ScopeKind::Project)
        .errors(&[Code::Conflict, Code::OwnershipRequired])
        .needs(Permission::AllocationOperate)
        .audited("allocation_group.release")
        .handle(capacity.clone(), release),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct GroupPath {
    project_id: ProjectId,
    group_id: GroupId,
}

/// What is to be launched, and how many of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AllocationGroupCreate {
    #[schemars(range(min = 1, max = 64))]
    members: u32,
    /// The product.
    sku: SkuCode,
    /// How many GPUs each member has.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1024))]
    gpus: Given<i32>,
    /// A size of the product by name.
    #[serde(default)]
    profile: Given<ProfileName>,
    /// Where; any one region when absent.
    #[serde(default)]
    region: Given<Term>,
    /// Of the group; its members are numbered, and no live allocation of the project may have the name of one.
    #[serde(default)]
    name: Given<Name>,
    /// What virtual machines are made from.
    #[serde(default)]
    image: Given<ImageName>,
}

async fn create(
    capacity: Capacity,
    mut tx: Write,
    input: In<ProjectPath, Empty, Json<AllocationGroupCreate>>,
) -> Result<Accepted<GroupDetail>, Failure> {
    let creator = creator(&input.access)?;
    let body = input.body.0;
    let wanted = Wanted {
        sku: body.sku.into_string(),
        gpus: body.gpus.0,
        profile: body.profile.0.map(ProfileName::into_string),
        region: body.region.0.map(Term::into_string),
        name: body.name.0,
        image: body.image.0,
    };
    Ok(Accepted(groups::create(&capacity, &mut tx, creator, wanted, body.members).await?))
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<ProjectPath, PageQuery, ()>,
) -> Result<Json<Page<Group>>, Failure> {
    Ok(Json(groups::list(&mut tx, input.path.project_id, &input.query).await?))
}

async fn show(
    _: Capacity,
    mut tx: ReadTx,
    input: In<GroupPath, Empty, ()>,
) -> Result<Json<GroupDetail>, Failure> {
    Ok(Json(groups::get(tx.conn(), input.path.project_id, input.path.group_id).await?))
}

async fn release(
    capacity: Capacity,
    mut tx: Write,
    input: In<GroupPath, Empty, ()>,
) -> Result<Accepted<GroupDetail>, Failure> {
    let any = input.access.permissions().holds(Permission::AllocationOperateAny);
    let (project, group) = (input.path.project_id, input.path.group_id);
    Ok(Accepted(groups::release(&capacity, &mut tx, project, group, any).await?))
}
