//! `/platform/allocations`: what operators see of them and may do to them, and slots that need them.

use endpoint::{Accepted, Empty, Endpoint, Given, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{AllocationId, NodeId, OrgId, ProjectId, SlotId},
    text::{Reason, Term},
};
use pg::ReadTx;
use saga::TimelineEntry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Capacity,
    model::allocation::{Allocation, AllocationState, AllocationView, Filter},
    service::{
        allocations,
        release::force_release,
        slot_cleanup::{SlotCleaned, SlotCleanup, force_cleanup, slot_cleanup_retry, slot_force_cleanup},
    },
};

const ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition];
const SLOT_ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition, Code::InUse, Code::Unprocessable];

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/allocations", "platform_allocation_list", "List allocations of all organizations")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), list),
        get("/api/v1/platform/allocations/{allocation_id}", "platform_allocation_get", "Show an allocation with its workflow runs")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), show),
        post("/api/v1/platform/allocations/{allocation_id}/force-release", "platform_allocation_force_release", "Release somebody's allocation")
            .describe("The same as a release by its project. Idempotent, except that a failed release is retried.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::CapacityManage)
            .audited("allocation.force_release")
            .handle(capacity.clone(), release),
        post("/api/v1/platform/allocations/{allocation_id}/force-cleanup", "platform_allocation_force_cleanup", "Force the end of a release that cannot complete")
            .describe("Its capacity is sold again: only after a person has verified that no data of its user is left on the machine.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::CapacityManage)
            .audited("allocation.force_cleanup")
            .handle(capacity.clone(), cleanup),
        post("/api/v1/platform/slots/{slot_id}/cleanup", "slot_cleanup_retry", "Retry the cleanup of a slot")
            .describe("For a slot whose allocation has ended without a successful cleanup. All slots of the allocation are cleaned together.")
            .in_scope(ScopeKind::Platform)
            .errors(SLOT_ERRORS)
            .needs(Permission::CapacityManage)
            .audited("slot.cleanup_retry")
            .handle(capacity.clone(), slot_retry),
        post("/api/v1/platform/slots/{slot_id}/force-cleanup", "slot_force_cleanup", "Confirm that a slot is clean")
            .describe("It is sold again: only after a person has verified that no data is left on it.")
            .in_scope(ScopeKind::Platform)
            .errors(SLOT_ERRORS)
            .needs(Permission::CapacityManage)
            .audited("slot.force_cleanup")
            .handle(capacity.clone(), slot_force),
    ]
}

/// An allocation with where it stands.
#[derive(Serialize, JsonSchema)]
struct PlatformAllocation {
    #[serde(flatten)]
    allocation: AllocationView,
    org_id: OrgId,
    node_id: NodeId,
    slot_ids: Vec<SlotId>,
}

impl From<Allocation> for PlatformAllocation {
    fn from(a: Allocation) -> Self {
        let (org_id, node_id, slot_ids) = (a.org_id, a.node_id, a.slot_ids.clone());
        Self { allocation: a.into(), org_id, node_id, slot_ids }
    }
}

/// The same with what its workflows did, newest first.
#[derive(Serialize, JsonSchema)]
struct PlatformAllocationDetail {
    #[serde(flatten)]
    allocation: PlatformAllocation,
    timeline: Vec<TimelineEntry>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those of this organization.
    #[serde(default)]
    org_id: Given<OrgId>,
    /// Only those of this project.
    #[serde(default)]
    project_id: Given<ProjectId>,
    /// Only those in this state.
    #[serde(default)]
    state: Given<AllocationState>,
    /// Only those on this node.
    #[serde(default)]
    node_id: Given<NodeId>,
    /// Only those of this product.
    #[serde(default)]
    sku: Given<Term>,
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<PlatformAllocation>>, Failure> {
    let query = input.query;
    let filter = Filter {
        org: query.org_id.0,
        project: query.project_id.0,
        state: query.state.0,
        node: query.node_id.0,
        sku: query.sku.0.as_ref().map(Term::as_str),
        ..Filter::default()
    };
    Ok(Json(allocations::list(&mut tx, filter, &query.page).await?.map(PlatformAllocation::from)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AllocationPath {
    allocation_id: AllocationId,
}

async fn show(
    _: Capacity,
    mut tx: ReadTx,
    input: In<AllocationPath, Empty, ()>,
) -> Result<Json<PlatformAllocationDetail>, Failure> {
    let (allocation, timeline) = allocations::with_timeline(&mut tx, input.path.allocation_id).await?;
    Ok(Json(PlatformAllocationDetail { allocation: allocation.into(), timeline }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForceRelease {
    /// Its project can read it.
    reason: Reason,
}

async fn release(
    capacity: Capacity,
    mut tx: Write,
    input: In<AllocationPath, Empty, Json<ForceRelease>>,
) -> Result<Accepted<PlatformAllocation>, Failure> {
    let (id, reason) = (input.path.allocation_id, input.body.0.reason);
    Ok(Accepted(force_release(&capacity, &mut tx, id, &reason, input.if_match).await?.into()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForceCleanup {
    /// That somebody looked at the machine, and nothing of the former user is left there.
    runtime_verified_absent: bool,
    /// Its project can read it.
    reason: Reason,
}

async fn cleanup(
    _: Capacity,
    mut tx: Write,
    input: In<AllocationPath, Empty, Json<ForceCleanup>>,
) -> Result<Json<PlatformAllocation>, Failure> {
    let (id, body) = (input.path.allocation_id, input.body.0);
    let after =
        force_cleanup(&mut tx, id, body.runtime_verified_absent, &body.reason, input.if_match).await?;
    Ok(Json(after.into()))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SlotPath {
    slot_id: SlotId,
}

async fn slot_retry(
    _: Capacity,
    mut tx: Write,
    input: In<SlotPath, Empty, ()>,
) -> Result<Accepted<SlotCleanup>, Failure> {
    Ok(Accepted(slot_cleanup_retry(&mut tx, input.path.slot_id).await?))
}

async fn slot_force(
    _: Capacity,
    mut tx: Write,
    input: In<SlotPath, Empty, Json<ForceCleanup>>,
) -> Result<Json<SlotCleaned>, Failure> {
    let body = input.body.0;
    let slot = input.path.slot_id;
    Ok(Json(slot_force_cleanup(&mut tx, slot, body.runtime_verified_absent, &body.reason).await?))
}
