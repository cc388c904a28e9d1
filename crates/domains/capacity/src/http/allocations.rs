//! `/projects/{project_id}/allocations`: launch, list, look, wait.

use endpoint::{
    Accepted, Empty, Endpoint, Given, In, Json, ProjectPath, ScopeKind, WaitQuery, Write, get, post,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{AllocationId, GroupId, ProjectId},
    text::{Name, Term},
};
use pg::{ReadTx, created};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Capacity,
    model::{
        allocation::{AllocationState, AllocationView, Filter},
        sku::{ProfileName, SkuCode},
    },
    service::{
        allocations::{self, Wait},
        launch::{Creator, ImageName, Launched, Wanted, launch},
    },
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/projects/{project_id}/allocations";
    const ONE: &str = "/api/v1/projects/{project_id}/allocations/{allocation_id}";
    vec![
        post(ALL, "allocation_create", "Launch a machine")
            .describe(
                "Capacity is reserved and the price is fixed in one transaction, or the request is refused \
                 with the reason. Provisioning is asynchronous: follow the allocation until it is `active`. \
                 Billing starts then; a failed launch is not billed.",
            )
            .in_scope(ScopeKind::Project)
            .errors(LAUNCH_ERRORS)
            .needs(Permission::AllocationCreate)
            .audited("allocation.create")
            .idempotency_required()
            .handle(capacity.clone(), create),
        get(ALL, "allocation_list", "List allocations")
            .describe("Oldest first; includes ended ones, unless `live` is set.")
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), list),
        get(ONE, "allocation_get", "Show an allocation, or wait for it")
            .describe(
                "With `wait`, a long poll: the server responds when the allocation has left the state given \
                 in `state`, or without `state` when it is in a stable state, at the latest after that time.",
            )
            .in_scope(ScopeKind::Project)
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), show),
    ]
}

pub(super) const LAUNCH_ERRORS: &[Code] = &[
    Code::InsufficientBalance,
    Code::Unprocessable,
    Code::AlreadyExists,
    Code::QuotaExceeded,
    Code::SkuUnavailable,
    Code::IdempotencyKeyRequired,
];

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct AllocationPath {
    pub project_id: ProjectId,
    pub allocation_id: AllocationId,
}

/// What is to be launched.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AllocationCreate {
    /// The product.
    sku: SkuCode,
    /// How many GPUs; the smallest size of the product when neither this nor `profile` is given.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1024))]
    gpus: Given<i32>,
    /// A size of the product by name.
    #[serde(default)]
    profile: Given<ProfileName>,
    /// Where; any region when absent.
    #[serde(default)]
    region: Given<Term>,
    /// No live allocation of the project may have it. When absent: the product and the end of the id.
    #[serde(default)]
    name: Given<Name>,
    /// What a virtual machine is made from.
    #[serde(default)]
    image: Given<ImageName>,
}

pub(super) fn creator(access: &endpoint::Access) -> Result<Creator, Problem> {
    Ok(Creator { org: access.org()?, project: access.project()?, principal: access.principal()? })
}

async fn create(
    capacity: Capacity,
    mut tx: Write,
    input: In<ProjectPath, Empty, Json<AllocationCreate>>,
) -> Result<Accepted<AllocationView>, Failure> {
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
    let Launched { made, warnings } = launch(&capacity, &mut tx, creator, wanted).await?;
    let made = AllocationView::from(made);
    created(&mut tx, "allocation", made.id, &made)?;
    Ok(Accepted(AllocationView { warnings, ..made }))
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum YesNo {
    True,
    False,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those in this state.
    #[serde(default)]
    state: Given<AllocationState>,
    /// Only those that are not over.
    #[serde(default)]
    live: Given<YesNo>,
    /// Only members of this group.
    #[serde(default)]
    group_id: Given<GroupId>,
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<ProjectPath, ListQuery, ()>,
) -> Result<Json<Page<AllocationView>>, Failure> {
    let query = input.query;
    let filter = Filter {
        project: Some(input.path.project_id),
        state: query.state.0,
        live: query.live.0 == Some(YesNo::True),
        group: query.group_id.0,
        ..Filter::default()
    };
    let Page { items, next_cursor } = allocations::list(&mut tx, filter, &query.page).await?;
    Ok(Json(Page { items: allocations::views(tx.conn(), items).await?, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ShowQuery {
    #[serde(flatten)]
    wait: WaitQuery,
    /// The state that you know; the wait is over when it is another.
    #[serde(default)]
    state: Given<AllocationState>,
}

async fn show(
    capacity: Capacity,
    tx: ReadTx,
    input: In<AllocationPath, ShowQuery, ()>,
) -> Result<Json<AllocationView>, Failure> {
    let wait = Wait { past: input.query.state.0, patience: input.query.wait.patience()? };
    let path = input.path;
    Ok(Json(allocations::get(&capacity, tx, path.project_id, path.allocation_id, wait).await?))
}
