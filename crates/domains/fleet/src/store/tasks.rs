//! Tasks: inserting and forgetting. What becomes of them in between is in `dispatch`.

use chrono::{DateTime, Utc};
use node_proto::{SignedTask, Task};
use pg::Connection;

use crate::model::waiter::Waiting;

pub async fn insert(
    conn: &mut Connection,
    task: &Task,
    signed: &SignedTask,
    waiting: Option<&Waiting>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"INSERT INTO node_tasks (id, node_id, task_type, payload, signature, signer_version, correlation_id, issued_at,
               expires_at, waiting_kind, waiting_key, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)"#,
        task.task_id.uuid(),
        task.node_id.uuid(),
        task.task_type,
        &signed.payload.0,
        &signed.signature.0,
        i32::try_from(signed.signer_version).unwrap_or(i32::MAX),
        task.correlation_id,
        task.issued_at,
        task.expires_at,
        waiting.map(|w| w.waiter.name()) as Option<&str>,
        waiting.map(|w| w.key.as_str()) as Option<&str>,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets tasks that ended before `cutoff`. Ids sort by time, so the oldest come first.
pub async fn forget(conn: &mut Connection, cutoff: DateTime<Utc>, limit: i64) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM node_tasks WHERE id IN
             (SELECT id FROM node_tasks WHERE finished_at < $1 AND created_at < $1 ORDER BY id LIMIT $2)",
        cutoff,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
