//! Which agent programs there are.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, get};
use kernel::{Failure, Permission};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Serialize;

use super::Program;
use crate::Fleet;

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/agent-programs", "agent_program_list", "List the available agent programs")
            .describe(
                "Files named gpuaas-agent-<version>-<architecture> in the directory `fleet.programs_dir`.",
            )
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
    ]
}

#[derive(Serialize, JsonSchema)]
struct AgentPrograms {
    items: Vec<Program>,
}

async fn list(fleet: Fleet, _: ReadTx, _: In<Empty, Empty, ()>) -> Result<Json<AgentPrograms>, Failure> {
    let programs = fleet.programs().clone();
    let items = tokio::task::spawn_blocking(move || programs.list()).await??;
    Ok(Json(AgentPrograms { items }))
}
