//! What agents say, to be followed.

use endpoint::{Endpoint, In, Json, ScopeKind, Whole, get, wait_parse};
use kernel::{Failure, Permission, Problem};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::NodePath;
use crate::{
    Fleet,
    model::log::LogTail,
    service::logs::{Follow, tail},
};

const DEFAULT_LINES: i64 = 200;
const MOST_LINES: i64 = 1000;
const LONGEST_WAIT_SECONDS: u64 = 20;

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/nodes/{node_id}/logs", "node_log_tail", "Read or follow the log of a node's agent")
            .describe(
                "Without `after`, the most recent lines. With `after`, the later lines; with `wait`, a long poll for new ones.",
            )
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), follow),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct TailQuery {
    /// `next_after` of the previous answer.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    after: Option<Whole>,
    /// At most this many lines (1–1000).
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    limit: Option<Whole>,
    /// Wait so long for a line when there is none, such as `20s`, which is also the longest.
    #[serde(default)]
    #[schemars(with = "String", regex(pattern = "^[0-9]{1,2}s$"))]
    wait: Option<String>,
}

async fn follow(
    fleet: Fleet,
    tx: ReadTx,
    input: In<NodePath, TailQuery, ()>,
) -> Result<Json<LogTail>, Failure> {
    let query = input.query;
    let limit = query.limit.map_or(DEFAULT_LINES, |limit| limit.0);
    if !(1..=MOST_LINES).contains(&limit) {
        return Err(Problem::field("limit", format!("must be from 1 to {MOST_LINES}")).into());
    }
    let patience = wait_parse(query.wait.as_deref(), LONGEST_WAIT_SECONDS)?;
    let follow = Follow { after: query.after.map(|after| after.0), limit, patience };
    Ok(Json(tail(&fleet, tx, input.path.node_id, follow).await?))
}
