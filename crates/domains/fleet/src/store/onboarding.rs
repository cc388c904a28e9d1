//! How far new nodes have come.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{NodeId, TaskId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::onboarding::{Onboarding, OnboardingState};

struct Row {
    node_id: Uuid,
    state: OnboardingState,
    detail: String,
    task_id: Option<Uuid>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Onboarding {
    fn from(row: Row) -> Self {
        Self {
            node_id: row.node_id.into(),
            state: row.state,
            detail: row.detail,
            task_id: row.task_id.map(TaskId::from),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn insert(conn: &mut Connection, node: NodeId, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO node_onboardings (node_id, created_at, updated_at) VALUES ($1, $2, $2)",
        node.uuid(),
        now
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn get(conn: &mut Connection, node: NodeId) -> Result<Option<Onboarding>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT node_id, state AS "state: OnboardingState", detail, task_id, version, created_at,
               updated_at FROM node_onboardings WHERE node_id = $1"#,
        node.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Onboarding::from))
}

/// Held until the transaction ends. The node's own lock comes first, where both are needed.
pub async fn lock(conn: &mut Connection, node: NodeId) -> Result<Option<Onboarding>, sqlx::Error> {
    sqlx::query_scalar!("SELECT node_id FROM node_onboardings WHERE node_id = $1 FOR UPDATE", node.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    get(conn, node).await
}

/// Applies a step that the lifecycle allowed, or only notes a task when `to` is where it is.
pub async fn update(
    conn: &mut Connection,
    before: &Onboarding,
    to: Option<OnboardingState>,
    (detail, task): (&str, Option<TaskId>),
    now: DateTime<Utc>,
) -> Result<Swap<Onboarding>, Failure> {
    let state = to.unwrap_or(before.state).name();
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE node_onboardings SET state = $3, detail = $4, task_id = coalesce($5, task_id),
             version = version + 1, updated_at = $6
         WHERE node_id = $1 AND version = $2
         RETURNING node_id, state AS "state: OnboardingState", detail, task_id, version, created_at, updated_at"#,
        before.node_id.uuid(),
        before.version,
        state,
        detail,
        task.map(TaskId::uuid),
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match row {
        Some(_) => None,
        None => get(conn, before.node_id).await?.map(|onboarding| onboarding.version),
    };
    Ok(Swap::from_update(row.map(Onboarding::from), current))
}
