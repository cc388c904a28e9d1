//! Looking nodes over, and proving that they are fit.

use endpoint::{Accepted, Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission};
use node_proto::catalog::ProbeProfile;
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::NodePath;
use crate::{
    Fleet,
    model::{
        task::TaskView,
        topology::{NodeTopology, Validation},
    },
    service::{
        onboarding::node_discover,
        topologies::node_topology,
        validations::{node_validate, node_validation_list},
    },
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ERRORS: &[Code] = &[Code::InvalidTransition, Code::ServiceUnavailable];
    vec![
        post("/api/v1/platform/nodes/{node_id}/discover", "node_discover", "Discover a node again")
            .describe(
                "Existing slots keep their ids and states, and no slot becomes sellable by a discovery.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("node.discover")
            .handle(fleet.clone(), discover),
        get(
            "/api/v1/platform/nodes/{node_id}/topology",
            "node_topology",
            "Show the result of a node's last discovery",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::FleetRead)
        .handle(fleet.clone(), topology),
        post("/api/v1/platform/nodes/{node_id}/validate", "node_validate", "Probe a node")
            .describe("Approved slots become available when the probe passes. The results are stored.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("node.validate")
            .handle(fleet.clone(), validate),
        get(
            "/api/v1/platform/nodes/{node_id}/validations",
            "node_validation_list",
            "List the results of a node's probes",
        )
        .describe("Newest first.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::FleetRead)
        .handle(fleet.clone(), validations),
    ]
}

async fn discover(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, ()>,
) -> Result<Accepted<TaskView>, Failure> {
    Ok(Accepted(node_discover(&fleet, &mut tx, input.path.node_id).await?))
}

async fn topology(
    _: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, Empty, ()>,
) -> Result<Json<NodeTopology>, Failure> {
    Ok(Json(node_topology(&mut tx, input.path.node_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeValidate {
    profile: ProbeProfile,
}

async fn validate(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<NodeValidate>>,
) -> Result<Accepted<TaskView>, Failure> {
    Ok(Accepted(node_validate(&fleet, &mut tx, input.path.node_id, input.body.0.profile).await?))
}

async fn validations(
    _: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, PageQuery, ()>,
) -> Result<Json<Page<Validation>>, Failure> {
    Ok(Json(node_validation_list(&mut tx, input.path.node_id, &input.query).await?))
}
