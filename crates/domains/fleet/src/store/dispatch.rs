//! Tasks on their way: handed out, reported, ended. Inserting is in `tasks`.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId};
use lifecycle::Named as _;
use node_proto::contract::Phase;
use pg::Connection;
use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::model::task::TaskState;

/// A task is handed out at most so often; then it waits for its end.
pub const MOST_DELIVERIES: i32 = 20;

/// One node that asks for work.
#[derive(Clone, Debug)]
pub struct Ask {
    pub node: NodeId,
    /// How many tasks it has room for.
    pub room: i32,
    /// What it has taken over and not finished; nothing when it does not say, and then nothing whose lease lapsed
    /// is handed out again.
    pub holding: Option<Vec<TaskId>>,
}

/// A task that was just handed out, as its row says. Only `payload` and `signature` are worth believing.
#[derive(Clone, Debug)]
pub struct LeasedTask {
    pub id: TaskId,
    pub node_id: NodeId,
    pub task_type: String,
    pub payload: Vec<u8>,
    pub signature: Vec<u8>,
    pub signer_version: i32,
    pub correlation_id: Uuid,
    pub issued_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub deliveries: i32,
    pub waiting_kind: Option<String>,
    pub waiting_key: Option<String>,
}

/// Hands out, in one statement and for any number of nodes, what waits for each: what is queued, and what was
/// handed out before but, by the node's own word, never started. Rows that somebody else holds are skipped. Nothing
/// while a restore is not settled: what the restored rows say may be done already, or be undone.
pub async fn tasks_lease(
    conn: &mut Connection,
    asks: &[Ask],
    now: DateTime<Utc>,
    lease_until: DateTime<Utc>,
) -> Result<Vec<LeasedTask>, sqlx::Error> {
    let nodes: Vec<Uuid> = asks.iter().map(|ask| ask.node.uuid()).collect();
    let rooms: Vec<i32> = asks.iter().map(|ask| ask.room).collect();
    let tells: Vec<bool> = asks.iter().map(|ask| ask.holding.is_some()).collect();
    let held =
        asks.iter().flat_map(|ask| ask.holding.iter().flatten().map(|task| (ask.node.uuid(), task.uuid())));
    let (held_by, held): (Vec<Uuid>, Vec<Uuid>) = held.unzip();
    let rows = sqlx::query!(
        r#"WITH asked AS (
               SELECT a.node_id, a.room, a.tells FROM UNNEST($1::uuid[], $2::int4[], $3::bool[]) AS a (node_id, room, tells)
               WHERE EXISTS (SELECT FROM installation WHERE mode = 'normal')
           ), held AS (
               SELECT h.node_id, h.id FROM UNNEST($4::uuid[], $5::uuid[]) AS h (node_id, id)
           ), fresh AS (
               SELECT f.id, a.node_id, a.room FROM asked a CROSS JOIN LATERAL (
                   SELECT t.id FROM node_tasks t
                   WHERE t.node_id = a.node_id AND t.state = 'queued' AND t.expires_at > $6 AND t.deliveries < $8
                   ORDER BY t.id LIMIT a.room FOR UPDATE SKIP LOCKED) f
           ), lapsed AS (
               SELECT l.id, a.node_id, a.room FROM asked a CROSS JOIN LATERAL (
                   SELECT t.id FROM node_tasks t
                   WHERE a.tells AND t.node_id = a.node_id AND t.state = 'dispatched' AND t.lease_until <= $6
                     AND t.expires_at > $6 AND t.deliveries < $8
                     AND NOT EXISTS (SELECT FROM held h WHERE h.node_id = t.node_id AND h.id = t.id)
                   ORDER BY t.id LIMIT a.room FOR UPDATE SKIP LOCKED) l
           ), chosen AS (
               SELECT id FROM (
                   SELECT id, room, row_number() OVER (PARTITION BY node_id ORDER BY id) AS place
                   FROM (SELECT id, node_id, room FROM fresh UNION ALL SELECT id, node_id, room FROM lapsed) AS both_kinds) AS placed
               WHERE place <= room
           )
           UPDATE node_tasks t
           SET state = 'dispatched', lease_until = $7, deliveries = t.deliveries + 1, version = t.version + 1,
               updated_at = $6
           FROM chosen c WHERE t.id = c.id
           RETURNING t.id, t.node_id, t.task_type, t.payload, t.signature, t.signer_version, t.correlation_id,
               t.issued_at, t.expires_at, t.deliveries, t.waiting_kind, t.waiting_key"#,
        &nodes,
        &rooms,
        &tells,
        &held_by,
        &held,
        now,
        lease_until,
        MOST_DELIVERIES,
    )
    .fetch_all(conn)
    .await?;
    let mut leased: Vec<LeasedTask> = rows
        .into_iter()
        .map(|row| LeasedTask {
            id: TaskId::from(row.id),
            node_id: NodeId::from(row.node_id),
            task_type: row.task_type,
            payload: row.payload,
            signature: row.signature,
            signer_version: row.signer_version,
            correlation_id: row.correlation_id,
            issued_at: row.issued_at,
            expires_at: row.expires_at,
            deliveries: row.deliveries,
            waiting_kind: row.waiting_kind,
            waiting_key: row.waiting_key,
        })
        .collect();
    leased.sort_by_key(|task| task.id);
    Ok(leased)
}

/// Puts back what was leased for somebody who left before it could be sent: it was never started. Only this handing
/// out is undone: when its lease has lapsed and somebody else handed the task out since, it stays so.
pub async fn put_back(
    conn: &mut Connection,
    leased: &[LeasedTask],
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let ids: Vec<Uuid> = leased.iter().map(|task| task.id.uuid()).collect();
    let deliveries: Vec<i32> = leased.iter().map(|task| task.deliveries).collect();
    let done = sqlx::query!(
        "UPDATE node_tasks t SET state = 'queued', lease_until = NULL, deliveries = t.deliveries - 1,
             version = t.version + 1, updated_at = $3
         FROM UNNEST($1::uuid[], $2::int4[]) AS c (id, deliveries)
         WHERE t.id = c.id AND t.deliveries = c.deliveries AND t.state = 'dispatched'",
        &ids,
        &deliveries,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Work that lies ready for one of `nodes`. `lapsed` names a task whose lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub node: NodeId,
    pub lapsed: Option<TaskId>,
}

/// What a missed wake-up left behind.
pub async fn ready(
    conn: &mut Connection,
    nodes: &[NodeId],
    now: DateTime<Utc>,
) -> Result<Vec<Ready>, sqlx::Error> {
    let nodes: Vec<Uuid> = nodes.iter().map(|node| node.uuid()).collect();
    let rows = sqlx::query!(
        r#"SELECT DISTINCT node_id AS "node_id!", NULL::uuid AS lapsed FROM node_tasks
           WHERE state = 'queued' AND node_id = ANY($1) AND expires_at > $2 AND deliveries < $3
           UNION ALL
           SELECT node_id, id FROM node_tasks
           WHERE state = 'dispatched' AND node_id = ANY($1) AND lease_until <= $2 AND expires_at > $2
             AND deliveries < $3"#,
        &nodes,
        now,
        MOST_DELIVERIES,
    )
    .fetch_all(conn)
    .await?;
    let ready = |node_id, lapsed: Option<Uuid>| Ready {
        node: NodeId::from(node_id),
        lapsed: lapsed.map(TaskId::from),
    };
    Ok(rows.into_iter().map(|row| ready(row.node_id, row.lapsed)).collect())
}

/// The node says that it started the task, or how far it has come. False when the task is not under way.
pub async fn progress(
    conn: &mut Connection,
    node: NodeId,
    task: TaskId,
    phases: &[Phase],
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE node_tasks SET state = 'running', started_at = COALESCE(started_at, $4), lease_until = NULL,
             phases = $3, version = version + 1, updated_at = $4
         WHERE id = $1 AND node_id = $2 AND state IN ('dispatched', 'running')",
        task.uuid(),
        node.uuid(),
        Json(phases) as _,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The state of a task of this node.
pub async fn state_of(
    conn: &mut Connection,
    node: NodeId,
    task: TaskId,
) -> Result<Option<TaskState>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT state AS "state: TaskState" FROM node_tasks WHERE id = $1 AND node_id = $2"#,
        task.uuid(),
        node.uuid()
    )
    .fetch_optional(conn)
    .await
}

/// A task as whoever ends it sees it, locked until the transaction ends.
#[derive(Clone, Debug)]
pub struct Open {
    pub id: TaskId,
    pub node_id: NodeId,
    pub task_type: String,
    pub state: TaskState,
    pub outcome_digest: Option<Vec<u8>>,
    pub has_late_outcome: bool,
    pub expires_at: DateTime<Utc>,
    pub correlation_id: Uuid,
    /// As it was signed.
    pub traceparent: Option<String>,
    pub waiting_kind: Option<String>,
    pub waiting_key: Option<String>,
    pub version: i64,
}

pub async fn lock(conn: &mut Connection, task: TaskId) -> Result<Option<Open>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT id, node_id, task_type, state AS "state: TaskState", outcome_digest,
               late_outcome IS NOT NULL AS "has_late_outcome!", expires_at, correlation_id, payload, waiting_kind, waiting_key, version
           FROM node_tasks WHERE id = $1 FOR UPDATE"#,
        task.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Open {
        id: TaskId::from(row.id),
        node_id: NodeId::from(row.node_id),
        task_type: row.task_type,
        state: row.state,
        outcome_digest: row.outcome_digest,
        has_late_outcome: row.has_late_outcome,
        expires_at: row.expires_at,
        correlation_id: row.correlation_id,
        traceparent: serde_json::from_slice(&row.payload).ok().and_then(|Traced { traceparent }| traceparent),
        waiting_kind: row.waiting_kind,
        waiting_key: row.waiting_key,
        version: row.version,
    }))
}

#[derive(Deserialize)]
struct Traced {
    traceparent: Option<String>,
}

/// Open tasks at a node whose waiting party has a key that begins so, oldest first.
pub async fn open_of(
    conn: &mut Connection,
    node: NodeId,
    waiting_kind: &str,
    key_prefix: &str,
    limit: i64,
) -> Result<Vec<TaskId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM node_tasks
         WHERE state IN ('queued', 'dispatched', 'running') AND node_id = $1 AND waiting_kind = $2
           AND starts_with(waiting_key, $3)
         ORDER BY id LIMIT $4",
        node.uuid(),
        waiting_kind,
        key_prefix,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(TaskId::from).collect())
}

/// What a task ended with.
pub struct Ended<'a> {
    pub state: TaskState,
    /// What the node told, and the digest of what it told.
    pub outcome: Option<(&'a Value, &'a [u8])>,
    pub phases: Option<&'a [Phase]>,
}

/// Ends a task that the transaction has locked.
pub async fn end(
    conn: &mut Connection,
    task: TaskId,
    ended: Ended<'_>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let (outcome, digest) = ended.outcome.unzip();
    sqlx::query!(
        // What ended before it said that it started did both between two looks.
        "UPDATE node_tasks SET state = $2, outcome = $3, outcome_digest = $4, phases = COALESCE($5, phases),
             started_at = COALESCE(started_at, CASE WHEN $5::jsonb IS NOT NULL THEN $6::timestamptz END), finished_at = $6,
             lease_until = NULL, version = version + 1, updated_at = $6
         WHERE id = $1",
        task.uuid(),
        ended.state.name(),
        outcome as Option<&Value>,
        digest as Option<&[u8]>,
        ended.phases.map(Json) as _,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What came too late is kept, once.
pub async fn keep_late(
    conn: &mut Connection,
    task: TaskId,
    outcome: &Value,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE node_tasks SET late_outcome = $2, version = version + 1, updated_at = $3
         WHERE id = $1 AND late_outcome IS NULL",
        task.uuid(),
        outcome,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A place among tasks in the order in which their time ends.
pub type Place = (DateTime<Utc>, TaskId);

/// Open tasks whose time is over, in the order in which it ended, after a place.
pub async fn overdue(
    conn: &mut Connection,
    now: DateTime<Utc>,
    after: Option<Place>,
    limit: i64,
) -> Result<Vec<Place>, sqlx::Error> {
    let (after_time, after_id) = after.unzip();
    let rows = sqlx::query!(
        "SELECT expires_at, id FROM node_tasks
         WHERE state IN ('queued', 'dispatched', 'running') AND expires_at <= $1
           AND ($2::timestamptz IS NULL OR (expires_at, id) > ($2, $3::uuid))
         ORDER BY expires_at, id LIMIT $4",
        now,
        after_time as Option<DateTime<Utc>>,
        after_id.map(|id| id.uuid()) as Option<Uuid>,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.expires_at, TaskId::from(row.id))).collect())
}
