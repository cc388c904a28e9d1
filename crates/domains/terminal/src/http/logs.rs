//! Logs of nodes on demand.

use endpoint::{Created, Empty, Endpoint, Given, In, Json, Lane, ScopeKind, Write, post};
use kernel::{Code, Failure, Permission, Problem, ids::NodeId};
use node_proto::log_stream::MOST_RECENT_LINES;
use schemars::JsonSchema;
use serde::Deserialize;

use super::caller;
use crate::{
    Terminals,
    model::log::{LogSource, NodeLogTokenIssued},
    service::logs::{WantedLog, log_token_create},
};

const DEFAULT_LINES: u32 = 200;

/// What an open log is checked against, by its source: the kernel's log is for whoever may collect diagnostics.
pub const fn permission(source: LogSource) -> Permission {
    match source {
        LogSource::Agent => Permission::FleetRead,
        LogSource::Kernel => Permission::FleetManage,
    }
}

/// The declaration is also what an open log is checked against.
pub fn log_token_endpoint(terminals: &Terminals) -> Endpoint {
    post(
        "/api/v1/platform/nodes/{node_id}/log-token",
        "node_log_token_create",
        "Get a token to follow a log of a node",
    )
    .describe(
        "The token works once, within a minute, for a WebSocket at `url` with the protocol `gpuaas.node-logs.v1`: recent \
         lines, then new ones as the node logs them, redacted on the node. The kernel's log needs the permission \
         `fleet.manage`.",
    )
    .in_scope(ScopeKind::Platform)
    .lane(Lane::Terminal)
    .needs(permission(LogSource::Agent))
    .audited("node.log_token_create")
    .handle(terminals.clone(), create)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct NodePath {
    node_id: NodeId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeLogTokenCreate {
    #[serde(default)]
    source: LogSource,
    /// Recent lines that come first (0–1000), 200 unless said otherwise.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0, max = 1000))]
    lines: Given<i64>,
}

async fn create(
    terminals: Terminals,
    mut tx: Write,
    input: In<NodePath, Empty, Json<NodeLogTokenCreate>>,
) -> Result<Created<NodeLogTokenIssued>, Failure> {
    let caller = caller(&input)?;
    let NodeLogTokenCreate { source, lines } = input.body.0;
    if !input.access.permissions().holds(permission(source)) {
        return Err(Problem::from_code(Code::InsufficientPermissions).into());
    }
    let lines = match lines.0 {
        None => DEFAULT_LINES,
        Some(lines) => u32::try_from(lines)
            .ok()
            .filter(|lines| *lines as usize <= MOST_RECENT_LINES)
            .ok_or_else(|| Problem::field("lines", format!("must be from 0 to {MOST_RECENT_LINES}")))?,
    };
    let wanted = WantedLog { node: input.path.node_id, source, lines };
    Ok(Created(log_token_create(&terminals, &mut tx, &caller, wanted).await?))
}
