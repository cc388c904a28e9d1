//! Bootstrap and repair tokens.

use endpoint::{Created, Empty, Endpoint, In, ScopeKind, Write, post};
use kernel::{Code, Failure, Permission};

use super::NodePath;
use crate::{
    Fleet,
    model::token::IssuedToken,
    service::tokens::{node_bootstrap_token, node_repair_token},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    vec![
        post(
            "/api/v1/platform/nodes/{node_id}/bootstrap-token",
            "node_bootstrap_token",
            "Create a new bootstrap token for a node that has not enrolled",
        )
        .describe("Shown only once. Earlier tokens are revoked.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition, Code::ServiceUnavailable])
        .needs(Permission::FleetManage)
        .audited("node.bootstrap_token")
        .handle(fleet.clone(), bootstrap),
        post(
            "/api/v1/platform/nodes/{node_id}/repair-token",
            "node_repair_token",
            "Create a repair token for an enrolled node that lost its certificate",
        )
        .describe("Shown only once. When it is used, all earlier certificates of the node are revoked.")
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition, Code::ServiceUnavailable])
        .needs(Permission::FleetManage)
        .audited("node.repair_token")
        .handle(fleet.clone(), repair),
    ]
}

async fn bootstrap(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, ()>,
) -> Result<Created<IssuedToken>, Failure> {
    Ok(Created(node_bootstrap_token(&fleet, &mut tx, input.path.node_id).await?))
}

async fn repair(
    fleet: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, ()>,
) -> Result<Created<IssuedToken>, Failure> {
    Ok(Created(node_repair_token(&fleet, &mut tx, input.path.node_id).await?))
}
