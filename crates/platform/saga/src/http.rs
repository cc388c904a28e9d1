//! What operators see and do: runs, and what each did.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::SagaRunId,
    text::{Reason, Term},
};
use pg::{Db, ReadTx};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::runs::{self, Filter, RunState, SagaRun, SagaRunDetail};

#[derive(Debug, Deserialize, JsonSchema)]
struct SagaQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only runs in this state.
    #[serde(default)]
    #[schemars(with = "RunState")]
    state: Option<RunState>,
    /// Only runs of this workflow.
    #[serde(default)]
    #[schemars(with = "Term")]
    name: Option<Term>,
    /// Only runs about this subject.
    #[serde(default)]
    #[schemars(with = "Term")]
    subject: Option<Term>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SagaPath {
    run_id: SagaRunId,
}

/// Why a run is cancelled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SagaCancel {
    reason: Reason,
}

pub fn endpoints(db: Db) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/sagas", "saga_list", "List workflow runs")
            .describe("Runs of durable workflows, newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle(db.clone(), saga_list),
        get("/api/v1/platform/sagas/{run_id}", "saga_get", "Show a workflow run")
            .describe("The run with every attempt of its steps and undos.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle(db, saga_get),
        post("/api/v1/platform/sagas/{run_id}/cancel", "saga_cancel", "Cancel a workflow run")
            .describe("The run stops, and its steps are undone; a run that cannot be undone becomes stuck.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::PlatformOpsManage)
            .audited("saga.cancel")
            .handle((), saga_cancel),
    ]
}

async fn saga_list(
    db: Db,
    mut tx: ReadTx,
    input: In<Empty, SagaQuery, ()>,
) -> Result<Json<Page<SagaRun>>, Failure> {
    let SagaQuery { page, state, name, subject } = input.query;
    let filter = Filter { state, name: name.map(Term::into_string), subject: subject.map(Term::into_string) };
    runs::list(tx.conn(), db.ambient().now(), &filter, &page).await.map(Json)
}

async fn saga_get(
    db: Db,
    mut tx: ReadTx,
    input: In<SagaPath, Empty, ()>,
) -> Result<Json<SagaRunDetail>, Failure> {
    runs::get(tx.conn(), db.ambient().now(), input.path.run_id).await.map(Json)
}

async fn saga_cancel(
    (): (),
    mut tx: Write,
    input: In<SagaPath, Empty, Json<SagaCancel>>,
) -> Result<Json<SagaRun>, Failure> {
    runs::cancel(&mut tx, input.path.run_id, &input.body.0.reason).await.map(Json)
}
