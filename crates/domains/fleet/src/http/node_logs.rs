//! What agents say, to be followed.

use std::time::Duration;

use endpoint::{Endpoint, In, Json, ScopeKind, get};
use kernel::{Failure, Permission, Problem, ids::NodeId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

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
                "Without `after`, the last lines. With it, what came later; and with `wait`, as soon as something did.",
            )
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), follow),
    ]
}

/// A whole number; query strings carry it as text.
#[derive(Clone, Copy, Debug)]
struct Whole(i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let number = text.parse().ok().filter(|n| *n >= 0);
        number.map(Self).ok_or_else(|| D::Error::custom("must be a whole number, not negative"))
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct NodePath {
    node_id: NodeId,
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
    let wait = query.wait.as_deref().map_or(Ok(0), seconds)?;
    let follow =
        Follow { after: query.after.map(|after| after.0), limit, patience: Duration::from_secs(wait) };
    Ok(Json(tail(&fleet, tx, input.path.node_id, follow).await?))
}

fn seconds(text: &str) -> Result<u64, Problem> {
    let seconds = text.strip_suffix('s').and_then(|digits| digits.parse().ok());
    seconds.filter(|seconds| *seconds <= LONGEST_WAIT_SECONDS).ok_or_else(|| {
        Problem::field(
            "wait",
            format!("must be a number of seconds such as 10s, at most {LONGEST_WAIT_SECONDS}s"),
        )
    })
}
