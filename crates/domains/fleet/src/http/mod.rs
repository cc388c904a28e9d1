//! Endpoints, one file per resource. A handler reads its typed input, calls one use case, and returns.

mod agent_tasks;
mod certificates;
mod findings;
mod health_rules;
mod node_logs;
mod nodes;
mod onboarding;
mod pools;
mod regions;
mod slots;
mod tasks;
mod tokens;

use endpoint::{Endpoint, Flag, Given};
use kernel::{ids::NodeId, text::Reason};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::Fleet;

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    [
        regions::endpoints,
        pools::endpoints,
        nodes::endpoints,
        tokens::endpoints,
        certificates::endpoints,
        agent_tasks::endpoints,
        onboarding::endpoints,
        slots::endpoints,
        findings::endpoints,
        health_rules::endpoints,
        tasks::endpoints,
        node_logs::endpoints,
    ]
    .into_iter()
    .flat_map(|of_resource| of_resource(fleet))
    .collect()
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct NodePath {
    node_id: NodeId,
}

/// Why somebody does it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Because")]
struct Because {
    reason: Reason,
}
