//! What operators have nodes do.

use endpoint::{Accepted, Empty, Endpoint, In, Json, ScopeKind, Write, post};
use kernel::{Code, Failure, Permission};
use node_proto::catalog::CollectPart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Because, NodePath};
use crate::{
    Fleet,
    model::{node::Node, occupant::NodeOccupants, task::TaskView, text::Sha256Hex},
    service::agent_tasks::{
        node_agent_update, node_collect, node_drain, node_quarantine, node_reboot, node_release, node_remove,
        node_retire, node_undrain,
    },
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    let mut all = service(fleet);
    all.extend(work(fleet));
    all
}

/// Into service and out of it.
fn service(fleet: &Fleet) -> Vec<Endpoint> {
    const ERRORS: &[Code] = &[Code::Conflict, Code::InvalidTransition];
    vec![
        post("/api/v1/platform/nodes/{node_id}/drain", "node_drain", "Drain a node")
            .describe("It takes no new allocations; those that it has run to their end, and are named in the response.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition, Code::ServiceUnavailable])
            .needs(Permission::FleetManage)
            .audited("node.drain")
            .handle(fleet.clone(), drain),
        post(
            "/api/v1/platform/nodes/{node_id}/undrain",
            "node_undrain",
            "Put a draining node back into service",
        )
        .describe("Refused for a node that never passed its validation.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::Conflict, Code::InvalidTransition, Code::ServiceUnavailable])
        .needs(Permission::FleetManage)
        .audited("node.undrain")
        .handle(fleet.clone(), undrain),
        post("/api/v1/platform/nodes/{node_id}/quarantine", "node_quarantine", "Quarantine a node")
            .describe("No new allocations are placed on it; running ones continue.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("node.quarantine")
            .handle(fleet.clone(), quarantine),
        post(
            "/api/v1/platform/nodes/{node_id}/release",
            "node_release",
            "Put a quarantined node back into service",
        )
        .describe("Refused for a node that never passed its validation.")
        .in_scope(ScopeKind::Platform)
        .errors(ERRORS)
        .needs(Permission::FleetManage)
        .audited("node.release")
        .handle(fleet.clone(), release),
        post("/api/v1/platform/nodes/{node_id}/retire", "node_retire", "Retire a drained node")
            .describe("Refused while any of its slots is in use; `details.allocations` names whose allocations are on it.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition, Code::InUse])
            .needs(Permission::FleetManage)
            .audited("node.retire")
            .handle(fleet.clone(), retire),
        post("/api/v1/platform/nodes/{node_id}/remove", "node_remove", "Remove a node from the fleet")
            .describe(
                "For nodes that have not completed enrolment, or were retired, with no slot in use. Its \
                 tasks are cancelled, and its certificates and tokens are revoked; it is deleted shortly \
                 after.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition, Code::InUse])
            .needs(Permission::FleetManage)
            .audited("node.remove")
            .handle(fleet.clone(), remove),
    ]
}

/// Work for the agent, answered with the task.
fn work(fleet: &Fleet) -> Vec<Endpoint> {
    const ERRORS: &[Code] = &[Code::InvalidTransition, Code::ServiceUnavailable];
    vec![
        post("/api/v1/platform/nodes/{node_id}/reboot", "node_reboot", "Restart a node")
            .describe("Terminates everything that runs on it. Drain it first to avoid this.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("node.reboot")
            .handle(fleet.clone(), reboot),
        post(
            "/api/v1/platform/nodes/{node_id}/agent-update",
            "node_agent_update",
            "Update the agent of a node",
        )
        .describe("Takes one of the available agent programs. An agent that does not become healthy is rolled back.")
        .in_scope(ScopeKind::Platform)
        .errors(ERRORS)
        .needs(Permission::FleetManage)
        .audited("node.agent_update")
        .handle(fleet.clone(), agent_update),
        post("/api/v1/platform/nodes/{node_id}/collect", "node_collect", "Collect diagnostics of a node")
            .describe("Redacted on the node, with a size limit. The result is in the outcome of the task.")
            .in_scope(ScopeKind::Platform)
            .errors(ERRORS)
            .needs(Permission::FleetManage)
            .audited("node.collect")
            .handle(fleet.clone(), collect),
    ]
}

type Reasoned = In<NodePath, Empty, Json<Because>>;

/// A node that takes no new allocations, and those that it still has.
#[derive(Serialize, JsonSchema)]
struct NodeDrainStarted {
    #[serde(flatten)]
    node: Node,
    occupants: NodeOccupants,
}

async fn drain(fleet: Fleet, mut tx: Write, input: Reasoned) -> Result<Accepted<NodeDrainStarted>, Failure> {
    let (id, reason) = (input.path.node_id, input.body.0.reason);
    let node = node_drain(&fleet, &mut tx, id, &reason, input.if_match).await?;
    let occupants = fleet.occupants(tx.conn(), id).await?;
    Ok(Accepted(NodeDrainStarted { node, occupants }))
}

async fn undrain(fleet: Fleet, mut tx: Write, input: Reasoned) -> Result<Accepted<Node>, Failure> {
    Ok(Accepted(
        node_undrain(&fleet, &mut tx, input.path.node_id, &input.body.0.reason, input.if_match).await?,
    ))
}

async fn quarantine(_: Fleet, mut tx: Write, input: Reasoned) -> Result<Json<Node>, Failure> {
    Ok(Json(node_quarantine(&mut tx, input.path.node_id, &input.body.0.reason, input.if_match).await?))
}

async fn release(_: Fleet, mut tx: Write, input: Reasoned) -> Result<Json<Node>, Failure> {
    Ok(Json(node_release(&mut tx, input.path.node_id, &input.body.0.reason, input.if_match).await?))
}

async fn retire(fleet: Fleet, mut tx: Write, input: Reasoned) -> Result<Json<Node>, Failure> {
    Ok(Json(node_retire(&fleet, &mut tx, input.path.node_id, &input.body.0.reason, input.if_match).await?))
}

async fn remove(fleet: Fleet, mut tx: Write, input: Reasoned) -> Result<Accepted<Node>, Failure> {
    Ok(Accepted(
        node_remove(&fleet, &mut tx, input.path.node_id, &input.body.0.reason, input.if_match).await?,
    ))
}

async fn reboot(fleet: Fleet, mut tx: Write, input: Reasoned) -> Result<Accepted<TaskView>, Failure> {
    Ok(Accepted(node_reboot(&fleet, &mut tx, input.path.node_id, &input.body.0.reason).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentUpdate {
    /// Of the program, for the node's architecture.
    sha256: Sha256Hex,
}

async fn agent_update(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<AgentUpdate>>,
) -> Result<Accepted<TaskView>, Failure> {
    Ok(Accepted(node_agent_update(&fleet, &mut tx, input.path.node_id, &input.body.0.sha256).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeCollect {
    #[schemars(length(min = 1, max = 16))]
    parts: Vec<CollectPart>,
}

async fn collect(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<NodeCollect>>,
) -> Result<Accepted<TaskView>, Failure> {
    Ok(Accepted(node_collect(&fleet, &mut tx, input.path.node_id, input.body.0.parts).await?))
}
