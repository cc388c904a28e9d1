//! Health findings.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{FindingId, NodeId},
    text::{Reason, Term},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Fleet,
    model::{
        finding::{Finding, FindingState},
        health_rule::HealthAction,
    },
    service::findings::{FindingFilter, finding_acknowledge, finding_get, finding_list, finding_resolve},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition];
    vec![
        get("/api/v1/platform/findings", "finding_list", "List health findings of nodes")
            .describe("Newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        get("/api/v1/platform/findings/{finding_id}", "finding_get", "Show a health finding")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        post(
            "/api/v1/platform/findings/{finding_id}/acknowledge",
            "finding_acknowledge",
            "Acknowledge a finding",
        )
        .describe("It stays open until it is resolved.")
        .in_scope(ScopeKind::Platform)
        .errors(ERRORS)
        .needs(Permission::FleetManage)
        .audited("finding.acknowledge")
        .handle(fleet.clone(), acknowledge),
        post("/api/v1/platform/findings/{finding_id}/resolve", "finding_resolve", "Resolve a finding")
            .describe("Its action (a cordon, a quarantine) is not reverted automatically.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("finding.resolve")
            .handle(fleet.clone(), resolve),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct FindingPath {
    finding_id: FindingId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only findings of this node.
    #[serde(default)]
    node_id: Given<NodeId>,
    /// Only findings in this state.
    #[serde(default)]
    state: Given<FindingState>,
    /// Only findings with this code.
    #[serde(default)]
    code: Given<Term>,
    /// Only findings that this was done about.
    #[serde(default)]
    action: Given<HealthAction>,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Finding>>, Failure> {
    let query = input.query;
    let filter = FindingFilter {
        node: query.node_id.0,
        state: query.state.0,
        code: query.code.0.as_ref().map(Term::as_str),
        action: query.action.0,
    };
    Ok(Json(finding_list(&mut tx, filter, &query.page).await?))
}

async fn show(_: Fleet, mut tx: ReadTx, input: In<FindingPath, Empty, ()>) -> Result<Json<Finding>, Failure> {
    Ok(Json(finding_get(&mut tx, input.path.finding_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindingAcknowledge {
    #[serde(default)]
    note: Given<Reason>,
}

async fn acknowledge(
    _: Fleet,
    mut tx: Write,
    input: In<FindingPath, Empty, Json<FindingAcknowledge>>,
) -> Result<Json<Finding>, Failure> {
    Ok(Json(finding_acknowledge(&mut tx, input.path.finding_id, input.body.0.note.0, input.if_match).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindingResolve {
    note: Reason,
}

async fn resolve(
    _: Fleet,
    mut tx: Write,
    input: In<FindingPath, Empty, Json<FindingResolve>>,
) -> Result<Json<Finding>, Failure> {
    Ok(Json(finding_resolve(&mut tx, input.path.finding_id, &input.body.0.note, input.if_match).await?))
}
