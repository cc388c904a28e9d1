//! Nodes: made, listed, shown, changed.

use std::num::NonZeroU16;

use endpoint::{Created, Empty, Endpoint, In, Json, ScopeKind, Write, get, patch, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, Problem, ids::PoolId, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Because, Flag, Given, NodePath};
use crate::{
    Fleet,
    model::{
        node::{HistoryEntry, Node, NodeDetail, NodeState, NodeSummary, Serves},
        text::{EligibleSku, Hostname, LabelFilter, Labels, MOST_SKUS, Reach, RegionCode, SshHost},
        token::IssuedToken,
    },
    service::{
        history::node_history,
        nodes::{
            NodeChange, NodeFilter, NodeRequest, node_cordon, node_create, node_get, node_list,
            node_uncordon, node_update,
        },
    },
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/platform/nodes";
    const ONE: &str = "/api/v1/platform/nodes/{node_id}";
    vec![
        get(ALL, "node_list", "List nodes")
            .describe("Deleted nodes are listed only with `state=deleted`.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        post(ALL, "node_create", "Create a node")
            .describe(
                "The response contains a bootstrap token, which is shown only once, and the command to run \
                 on the machine. The token is bound to this node and host name, can be used once, and \
                 expires within minutes.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists, Code::ServiceUnavailable])
            .needs(Permission::FleetManage)
            .audited("node.create")
            .handle(fleet.clone(), create),
        get(ONE, "node_get", "Show a node with its details")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        patch(ONE, "node_update", "Change a node's labels, pool, products, use or SSH address")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition])
            .needs(Permission::FleetManage)
            .audited("node.update")
            .handle(fleet.clone(), update),
        post("/api/v1/platform/nodes/{node_id}/cordon", "node_cordon", "Cordon a node")
            .describe("No new allocations are placed on it; running ones continue. The state of the node does not change.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition])
            .needs(Permission::FleetManage)
            .audited("node.cordon")
            .handle(fleet.clone(), cordon),
        post("/api/v1/platform/nodes/{node_id}/uncordon", "node_uncordon", "Uncordon a node")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict, Code::InvalidTransition])
            .needs(Permission::FleetManage)
            .audited("node.uncordon")
            .handle(fleet.clone(), uncordon),
        get("/api/v1/platform/nodes/{node_id}/history", "node_history", "List the state changes of a node")
            .describe("Newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), history),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only nodes in this state.
    #[serde(default)]
    state: Given<NodeState>,
    /// Only nodes in this region.
    #[serde(default)]
    region: Given<RegionCode>,
    /// Only nodes of this pool.
    #[serde(default)]
    pool_id: Given<PoolId>,
    /// Only nodes with this label, as `key=value`.
    #[serde(default)]
    label: Given<LabelFilter>,
    /// Only simulated nodes, or only others.
    #[serde(default)]
    simulated: Given<Flag>,
    /// Only the node with this host name.
    #[serde(default)]
    hostname: Given<Hostname>,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<NodeSummary>>, Failure> {
    let query = input.query;
    let filter = NodeFilter {
        state: query.state.0,
        region: query.region.0.as_ref().map(RegionCode::as_str),
        pool: query.pool_id.0,
        label: query.label.0.as_ref().map(LabelFilter::pair),
        simulated: query.simulated.0.map(|flag| flag.0),
        hostname: query.hostname.0.as_ref().map(Hostname::as_str),
    };
    Ok(Json(node_list(&mut tx, filter, &query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeCreate {
    hostname: Hostname,
    region: RegionCode,
    #[serde(default)]
    pool_id: Given<PoolId>,
    #[serde(default)]
    labels: Given<Labels>,
    /// The products that it may serve; none named means any that its slots fit.
    #[serde(default)]
    #[schemars(length(max = 32))]
    sku_eligibility: Vec<EligibleSku>,
    /// What it is sold as: `any` that its slots fit (what it is when nothing is said), or only whole (`baremetal`).
    /// A machine that is sold whole keeps its drivers, and needs no IOMMU, no fabric and no disk for each GPU.
    #[serde(default)]
    serves: Given<Serves>,
    /// Made of software: for tests and demonstrations.
    #[serde(default)]
    simulated: bool,
    /// Where users of the machine reach it by SSH, when that is not its host name.
    #[serde(default)]
    ssh_host: Given<SshHost>,
    /// 22 when nothing is said.
    #[serde(default)]
    ssh_port: Given<NonZeroU16>,
}

/// A new node with its bootstrap token.
#[derive(Serialize, JsonSchema)]
struct NodeCreated {
    node: Node,
    bootstrap: IssuedToken,
}

fn check_skus(skus: &[EligibleSku]) -> Result<(), Problem> {
    if skus.len() > MOST_SKUS {
        return Err(Problem::field("sku_eligibility", "must be at most 32 products"));
    }
    Ok(())
}

async fn create(
    fleet: Fleet,
    mut tx: Write,
    input: In<Empty, Empty, Json<NodeCreate>>,
) -> Result<Created<NodeCreated>, Failure> {
    let body = input.body.0;
    check_skus(&body.sku_eligibility)?;
    let request = NodeRequest {
        hostname: body.hostname,
        region: body.region,
        pool: body.pool_id.0,
        labels: body.labels.0.unwrap_or_default(),
        sku_eligibility: body.sku_eligibility,
        serves: body.serves.0.unwrap_or_default(),
        simulated: body.simulated,
        ssh: Reach { host: body.ssh_host.0, port: body.ssh_port.0 },
    };
    let (node, bootstrap) = node_create(&fleet, &mut tx, request).await?;
    Ok(Created(NodeCreated { node, bootstrap }))
}

async fn show(
    fleet: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, Empty, ()>,
) -> Result<Json<NodeDetail>, Failure> {
    Ok(Json(node_get(&fleet, &mut tx, input.path.node_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeUpdate {
    /// All labels that it has from now on.
    #[serde(default)]
    labels: Given<Labels>,
    #[serde(default)]
    pool_id: Given<PoolId>,
    /// True takes it out of its pool.
    #[serde(default)]
    leave_pool: bool,
    #[serde(default)]
    sku_eligibility: Given<Vec<EligibleSku>>,
    /// What it is sold as from now on; what runs there runs on. What its last discovery found is judged anew; when
    /// the machine itself was changed for it, discover the node again.
    #[serde(default)]
    serves: Given<Serves>,
    /// Where users of the machine reach it by SSH from now on; allocations that exist keep what they were told.
    #[serde(default)]
    ssh_host: Given<SshHost>,
    #[serde(default)]
    ssh_port: Given<NonZeroU16>,
}

async fn update(
    _: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<NodeUpdate>>,
) -> Result<Json<Node>, Failure> {
    let body = input.body.0;
    check_skus(body.sku_eligibility.0.as_deref().unwrap_or_default())?;
    let pool = match (body.pool_id.0, body.leave_pool) {
        (Some(_), true) => {
            return Err(Problem::field("leave_pool", "cannot be true when a pool is named").into());
        }
        (None, false) => None,
        (pool, _) => Some(pool),
    };
    let ssh = Reach { host: body.ssh_host.0, port: body.ssh_port.0 };
    let change = NodeChange {
        labels: body.labels.0,
        sku_eligibility: body.sku_eligibility.0,
        serves: body.serves.0,
        pool,
        ssh,
    };
    Ok(Json(node_update(&mut tx, input.path.node_id, change, input.if_match).await?))
}

async fn cordon(
    _: Fleet,
    mut tx: Write,
    input: In<NodePath, Empty, Json<Because>>,
) -> Result<Json<Node>, Failure> {
    let reason: Reason = input.body.0.reason;
    Ok(Json(node_cordon(&mut tx, input.path.node_id, reason.as_str(), input.if_match).await?))
}

async fn uncordon(_: Fleet, mut tx: Write, input: In<NodePath, Empty, ()>) -> Result<Json<Node>, Failure> {
    Ok(Json(node_uncordon(&mut tx, input.path.node_id, input.if_match).await?))
}

async fn history(
    _: Fleet,
    mut tx: ReadTx,
    input: In<NodePath, PageQuery, ()>,
) -> Result<Json<Page<HistoryEntry>>, Failure> {
    Ok(Json(node_history(&mut tx, input.path.node_id, &input.query).await?))
}
