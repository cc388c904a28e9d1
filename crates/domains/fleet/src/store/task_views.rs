//! Tasks as operators see them.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId};
use lifecycle::Named as _;
use node_proto::contract::{Ending, Phase};
use pg::Connection;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::model::task::{TaskState, TaskView};

struct Row {
    id: Uuid,
    node_id: Uuid,
    task_type: String,
    state: TaskState,
    payload: Vec<u8>,
    signer_version: i32,
    correlation_id: Uuid,
    issued_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    deliveries: i32,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    phases: Json<Vec<Phase>>,
    outcome: Option<Json<Ending>>,
    late_outcome: Option<Json<Ending>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for TaskView {
    fn from(row: Row) -> Self {
        // Only what was signed is shown: it is what the node would believe.
        let signed: Option<Value> = serde_json::from_slice(&row.payload).ok();
        let params = signed.and_then(|mut task| task.get_mut("params").map(Value::take)).unwrap_or_default();
        Self {
            id: TaskId::from(row.id),
            node_id: NodeId::from(row.node_id),
            task_type: row.task_type,
            state: row.state,
            params,
            signer_version: row.signer_version,
            correlation_id: row.correlation_id,
            issued_at: row.issued_at,
            expires_at: row.expires_at,
            deliveries: row.deliveries,
            started_at: row.started_at,
            finished_at: row.finished_at,
            phases: row.phases.0,
            outcome: row.outcome.map(|outcome| outcome.0),
            late_outcome: row.late_outcome.map(|outcome| outcome.0),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn get(conn: &mut Connection, task: TaskId) -> Result<Option<TaskView>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, task_type, state AS "state: TaskState", payload, signer_version, correlation_id, issued_at, expires_at,
               deliveries, started_at, finished_at, phases AS "phases: Json<Vec<Phase>>",
               outcome AS "outcome: Json<Ending>", late_outcome AS "late_outcome: Json<Ending>",
               version, created_at, updated_at
           FROM node_tasks WHERE id = $1"#,
        task.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(TaskView::from))
}

/// What a list is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct Filter<'a> {
    pub node: Option<NodeId>,
    pub state: Option<TaskState>,
    pub task_type: Option<&'a str>,
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    filter: &Filter<'_>,
    before: Uuid,
    limit: i64,
) -> Result<Vec<TaskView>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, task_type, state AS "state: TaskState", payload, signer_version, correlation_id, issued_at, expires_at,
               deliveries, started_at, finished_at, phases AS "phases: Json<Vec<Phase>>",
               outcome AS "outcome: Json<Ending>", late_outcome AS "late_outcome: Json<Ending>",
               version, created_at, updated_at
           FROM node_tasks
           WHERE id < $1 AND ($2::uuid IS NULL OR node_id = $2) AND ($3::text IS NULL OR state = $3)
             AND ($4::text IS NULL OR task_type = $4)
           ORDER BY id DESC LIMIT $5"#,
        before,
        filter.node.map(|node| node.uuid()) as Option<Uuid>,
        filter.state.map(TaskState::name),
        filter.task_type as Option<&str>,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(TaskView::from).collect())
}
