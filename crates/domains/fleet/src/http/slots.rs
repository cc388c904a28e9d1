//! Slots.

use endpoint::{Accepted, Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{NodeId, SlotId, TaskId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Given, NodePath};
use crate::{
    Fleet,
    model::{
        slot::{Approval, Slot, SlotHealth, SlotState},
        text::{EligibleSku, RegionCode},
    },
    service::slots::{
        SlotFilter, node_slots_approve, slot_get, slot_list, slot_quarantine, slot_restore, slot_withdraw,
    },
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition];
    vec![
        get("/api/v1/platform/slots", "slot_list", "List slots of the whole fleet")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        get("/api/v1/platform/slots/{slot_id}", "slot_get", "Show a slot")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        get("/api/v1/platform/nodes/{node_id}/slots", "node_slot_list", "List the slots of a node")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list_of_node),
        post(
            "/api/v1/platform/nodes/{node_id}/slots/approve",
            "node_slots_approve",
            "Approve slots of a node",
        )
        .describe(
            "Give the slots, or `all_ready`. A slot with blockers is refused, and the error lists them. \
                 The node is probed; the slots can be sold once the probe has passed.",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition, Code::Unprocessable, Code::ServiceUnavailable])
        .needs(Permission::FleetManage)
        .audited("node.slots_approve")
        .handle(fleet.clone(), approve),
        post("/api/v1/platform/slots/{slot_id}/withdraw", "slot_withdraw", "Revoke the approval of a slot")
            .describe("Refused while the slot is in use.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("slot.withdraw")
            .handle(fleet.clone(), withdraw),
        post("/api/v1/platform/slots/{slot_id}/quarantine", "slot_quarantine", "Quarantine a slot")
            .describe("Refused while the slot is in use.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("slot.quarantine")
            .handle(fleet.clone(), quarantine),
        post("/api/v1/platform/slots/{slot_id}/restore", "slot_restore", "Release a slot from quarantine")
            .describe("It can be sold again after its node has passed the next probe.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("slot.restore")
            .handle(fleet.clone(), restore),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SlotPath {
    slot_id: SlotId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only slots in this state.
    #[serde(default)]
    state: Given<SlotState>,
    /// Only slots of this health.
    #[serde(default)]
    health: Given<SlotHealth>,
    /// Only slots in this region.
    #[serde(default)]
    region: Given<RegionCode>,
    /// Only slots of this node.
    #[serde(default)]
    node_id: Given<NodeId>,
    /// Only slots that serve this product.
    #[serde(default)]
    sku: Given<EligibleSku>,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Slot>>, Failure> {
    let query = input.query;
    let filter = SlotFilter {
        node: query.node_id.0,
        state: query.state.0,
        health: query.health.0,
        region: query.region.0.as_ref().map(RegionCode::as_str),
        sku: query.sku.0.as_ref().map(EligibleSku::as_str),
    };
    Ok(Json(slot_list(&mut tx, filter, &query.page).await?))
}

async fn list_of_node(
    _: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, PageQuery, ()>,
) -> Result<Json<Page<Slot>>, Failure> {
    let filter = SlotFilter { node: Some(input.path.node_id), ..SlotFilter::default() };
    Ok(Json(slot_list(&mut tx, filter, &input.query).await?))
}

async fn show(_: Fleet, mut tx: ReadTx, input: In<SlotPath, Empty, ()>) -> Result<Json<Slot>, Failure> {
    Ok(Json(slot_get(&mut tx, input.path.slot_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SlotsApprove {
    /// These slots.
    #[serde(default)]
    #[schemars(length(max = 256))]
    slot_ids: Vec<SlotId>,
    /// Every slot that waits for approval and has nothing in its way.
    #[serde(default)]
    all_ready: bool,
    /// The product that they serve.
    #[serde(default)]
    sku: Given<EligibleSku>,
}

#[derive(Serialize, JsonSchema)]
struct SlotsApproved {
    slots: Vec<Slot>,
    /// The probe that decides.
    task_id: TaskId,
}

const MOST_SLOTS: usize = 256;

async fn approve(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<SlotsApprove>>,
) -> Result<Accepted<SlotsApproved>, Failure> {
    let body = input.body.0;
    let approval = match (body.all_ready, body.slot_ids) {
        (true, ids) if ids.is_empty() => Approval::AllReady,
        (false, mut ids) if (1..=MOST_SLOTS).contains(&ids.len()) => {
            ids.sort_unstable();
            ids.dedup();
            Approval::Slots(ids)
        }
        _ => return Err(Problem::field("slot_ids", "give 1 to 256 slots, or all_ready, not both").into()),
    };
    let sku = body.sku.0;
    let (slots, task_id) =
        node_slots_approve(&fleet, &mut tx, input.path.node_id, &approval, sku.as_ref()).await?;
    Ok(Accepted(SlotsApproved { slots, task_id }))
}

async fn withdraw(_: Fleet, mut tx: Write, input: In<SlotPath, Empty, ()>) -> Result<Json<Slot>, Failure> {
    Ok(Json(slot_withdraw(&mut tx, input.path.slot_id, input.if_match).await?))
}

async fn quarantine(_: Fleet, mut tx: Write, input: In<SlotPath, Empty, ()>) -> Result<Json<Slot>, Failure> {
    Ok(Json(slot_quarantine(&mut tx, input.path.slot_id, input.if_match).await?))
}

async fn restore(_: Fleet, mut tx: Write, input: In<SlotPath, Empty, ()>) -> Result<Json<Slot>, Failure> {
    Ok(Json(slot_restore(&mut tx, input.path.slot_id, input.if_match).await?))
}
