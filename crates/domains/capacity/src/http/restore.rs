//! `/platform/restore`: what differs from the nodes after a restore from a backup, and going on.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, ids::DiscrepancyId, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Capacity,
    model::{
        discrepancy::Discrepancy,
        restore::{Decision, RestoreDifference, RestoreStatus},
    },
    service::restore::{restore_difference_list, restore_difference_settle, restore_resume, restore_status},
};

const ERRORS: &[Code] = &[Code::InvalidTransition];

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/restore", "restore_status_get", "Show whether the platform was restored from a backup")
            .describe("In the mode `restore`, nothing is launched, released or charged until an operator resumes.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), show),
        get("/api/v1/platform/restore/differences", "restore_difference_list", "List differences between the database and the nodes")
            .describe("Open differences, with their decisions.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), list),
        post("/api/v1/platform/restore/differences/{discrepancy_id}/settle", "restore_difference_settle", "Decide how to settle a difference")
            .describe("`keep`: the records stay unchanged. `cordon`: the node is cordoned immediately. `end`: an allocation that its node does not have is released on resume, and billed until the time of the backup.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::CapacityManage)
            .audited("restore.settle")
            .handle(capacity.clone(), settle),
        post("/api/v1/platform/restore/resume", "restore_resume", "Resume after a restore")
            .describe("Refused while a difference is undecided, or while a node that is not cordoned has not reported and been compared with the records.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::CapacityManage)
            .audited("restore.resume")
            .handle(capacity.clone(), resume),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct DifferencePath {
    discrepancy_id: DiscrepancyId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RestoreDifferenceSettle {
    decision: Decision,
    /// Why; kept with the decision.
    note: Reason,
}

async fn show(_: Capacity, mut tx: ReadTx, _: In<Empty, Empty, ()>) -> Result<Json<RestoreStatus>, Failure> {
    Ok(Json(restore_status(&mut tx).await?))
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<RestoreDifference>>, Failure> {
    Ok(Json(restore_difference_list(&mut tx, &input.query).await?))
}

async fn settle(
    _: Capacity,
    mut tx: Write,
    input: In<DifferencePath, Empty, Json<RestoreDifferenceSettle>>,
) -> Result<Json<Discrepancy>, Failure> {
    let RestoreDifferenceSettle { decision, note } = input.body.0;
    Ok(Json(restore_difference_settle(&mut tx, input.path.discrepancy_id, decision, &note).await?))
}

async fn resume(
    capacity: Capacity,
    mut tx: Write,
    _: In<Empty, Empty, ()>,
) -> Result<Json<RestoreStatus>, Failure> {
    Ok(Json(restore_resume(&capacity, &mut tx).await?))
}
