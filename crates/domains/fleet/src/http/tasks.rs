//! Tasks, as operators see and stop them.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{NodeId, TaskId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Fleet,
    model::task::{TaskState, TaskView},
    service::{
        dispatch,
        task_views::{Filter, task_get, task_list},
    },
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/tasks", "task_list", "List tasks of nodes, newest first")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        get("/api/v1/platform/tasks/{task_id}", "task_get", "Show a task")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        post("/api/v1/platform/tasks/{task_id}/cancel", "task_cancel", "Cancel a task")
            .describe(
                "A node may finish a task that it has started; the result is stored, but has no effect.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::FleetManage)
            .audited("task.cancel")
            .handle(fleet.clone(), cancel),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only tasks of this node.
    #[serde(default)]
    #[schemars(with = "NodeId")]
    node_id: Option<NodeId>,
    /// Only tasks in this state.
    #[serde(default)]
    #[schemars(with = "TaskState")]
    state: Option<TaskState>,
    /// Only tasks of this type.
    #[serde(default)]
    #[schemars(with = "String")]
    task_type: Option<String>,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<TaskView>>, Failure> {
    let query = input.query;
    let filter = Filter { node: query.node_id, state: query.state, task_type: query.task_type.as_deref() };
    Ok(Json(task_list(&mut tx, &filter, &query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct TaskPath {
    task_id: TaskId,
}

async fn show(_: Fleet, mut tx: ReadTx, input: In<TaskPath, Empty, ()>) -> Result<Json<TaskView>, Failure> {
    Ok(Json(task_get(&mut tx, input.path.task_id).await?))
}

async fn cancel(
    fleet: Fleet,
    mut tx: Write,
    input: In<TaskPath, Empty, ()>,
) -> Result<Json<TaskView>, Failure> {
    Ok(Json(dispatch::cancel(&fleet, &mut tx, input.path.task_id, input.if_match).await?))
}
