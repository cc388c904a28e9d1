//! What happened to an allocation: read, or followed as it happens.

use endpoint::{Empty, Endpoint, In, Json, ProjectPath, ScopeKind, Sse, Whole, get};
use kernel::{Code, Failure, Permission, Problem};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::allocations::AllocationPath;
use crate::{
    Capacity,
    model::history::History,
    service::{allocations, project_stream, watching},
};

const DEFAULT_EVENTS: i64 = 100;
const MOST_EVENTS: i64 = 500;

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/events",
            "allocation_events",
            "List the events of an allocation",
        )
        .describe("State changes, phases of node tasks with their durations, access changes, operations.")
        .in_scope(ScopeKind::Project)
        .needs(Permission::AllocationRead)
        .handle(capacity.clone(), list),
        get(
            "/api/v1/projects/{project_id}/allocations/{allocation_id}/stream",
            "allocation_stream",
            "Follow an allocation",
        )
        .describe(
            "Server-sent events: first those after `Last-Event-ID` (or `after`), then each as it happens. The \
             event `end` means that the allocation has ended. The server ends the stream after some minutes: \
             reconnect.",
        )
        .in_scope(ScopeKind::Project)
        .errors(&[Code::RateLimitExceeded])
        .needs(Permission::AllocationRead)
        .handle(capacity.clone(), follow),
        get("/api/v1/projects/{project_id}/allocations/stream", "allocation_watch", "Follow all allocations of a project")
            .describe(
                "Server-sent events named `allocation`: first every live allocation, then each one that \
                 changes. The server ends the stream after some minutes: reconnect, and the stream starts \
                 over.",
            )
            .in_scope(ScopeKind::Project)
            .errors(&[Code::RateLimitExceeded])
            .needs(Permission::AllocationRead)
            .handle(capacity.clone(), watch),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct EventsQuery {
    /// `next_after` of the previous answer.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    after: Option<Whole>,
    /// At most this many events (1–500).
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 500))]
    limit: Option<Whole>,
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<AllocationPath, EventsQuery, ()>,
) -> Result<Json<History>, Failure> {
    let limit = input.query.limit.map_or(DEFAULT_EVENTS, |limit| limit.0);
    if !(1..=MOST_EVENTS).contains(&limit) {
        return Err(Problem::field("limit", format!("must be from 1 to {MOST_EVENTS}")).into());
    }
    let after = input.query.after.map_or(0, |after| after.0);
    let (project, id) = (input.path.project_id, input.path.allocation_id);
    Ok(Json(allocations::history(&mut tx, project, id, after, limit).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct StreamQuery {
    /// Only events after this one; `Last-Event-ID` comes before it.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    after: Option<Whole>,
}

async fn follow(
    capacity: Capacity,
    tx: ReadTx,
    input: In<AllocationPath, StreamQuery, ()>,
) -> Result<Sse, Failure> {
    let after = input.last_event_id.or(input.query.after.map(|after| after.0)).unwrap_or(0);
    let (project, id) = (input.path.project_id, input.path.allocation_id);
    watching::follow(&capacity, tx, project, id, after).await
}

async fn watch(capacity: Capacity, tx: ReadTx, input: In<ProjectPath, Empty, ()>) -> Result<Sse, Failure> {
    project_stream::follow(&capacity, tx, input.path.project_id)
}
