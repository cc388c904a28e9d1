//! The rows of runs, as workers read and write them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kernel::{
    CorrelationId,
    ids::{OrgId, SagaRunId},
};
use pg::{Connection, Db};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    decide::{Progress, RunEnd, Waiting, later},
    failure::{FailureCode, RunFailure},
    request::StepState,
    runs::RunState,
};

/// Why the engine writes its own tables.
pub(crate) const UPKEEP: &str = "run workflows";
/// Longer than a call may take, with its transaction around it.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
const KEPT_DAYS: i64 = 30;

/// A run on lease to this worker.
pub(crate) struct Run {
    pub id: SagaRunId,
    pub name: String,
    pub spec_version: i32,
    pub subject: String,
    pub org: Option<OrgId>,
    pub input: Value,
    pub outputs: Value,
    pub signal: Option<Value>,
    pub correlation: CorrelationId,
    pub traceparent: Option<String>,
    /// Leases in a row that brought nothing, with this one.
    pub unfinished: u32,
    pub fence: i64,
    pub progress: Progress,
}

struct Row {
    id: Uuid,
    name: String,
    spec_version: i32,
    subject: String,
    org_id: Option<Uuid>,
    state: RunState,
    input: Value,
    outputs: Value,
    step: i32,
    attempt: i32,
    begun: bool,
    unfinished: i32,
    end_attempts: i32,
    wake_key: Option<String>,
    signal: Option<Value>,
    attempt_deadline: Option<DateTime<Utc>>,
    failure: Option<String>,
    failure_code: Option<String>,
    cancel_reason: Option<String>,
    wake_at: DateTime<Utc>,
    fence: i64,
    deadline: DateTime<Utc>,
    correlation_id: Uuid,
    traceparent: Option<String>,
}

impl Run {
    fn from_row(row: Row, now: DateTime<Utc>) -> Self {
        let waiting = match (&row.wake_key, &row.signal) {
            (None, _) => Waiting::No,
            (Some(_), None) => Waiting::Suspended,
            (Some(_), Some(_)) => Waiting::Woken,
        };
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let code = row.failure_code.map_or(FailureCode::Unknown, FailureCode::read);
        let failure = row.failure.map(|text| RunFailure { code, text });
        Self {
            id: row.id.into(),
            name: row.name,
            spec_version: row.spec_version,
            subject: row.subject,
            org: row.org_id.map(OrgId::from),
            input: row.input,
            outputs: row.outputs,
            signal: row.signal,
            correlation: CorrelationId(row.correlation_id),
            traceparent: row.traceparent,
            unfinished: count(row.unfinished),
            fence: row.fence,
            progress: Progress {
                undoing: row.state == RunState::Undoing,
                step: usize::try_from(row.step).unwrap_or(0),
                attempt: count(row.attempt).max(1),
                begun: row.begun,
                waiting,
                attempt_deadline: row.attempt_deadline,
                due_at: row.wake_at,
                failure,
                cancel: row.cancel_reason,
                end_attempts: count(row.end_attempts),
                deadline: row.deadline,
                now,
            },
        }
    }
}

/// Leases runs that are due, of the definitions that this worker knows.
pub(crate) async fn lease(db: &Db, known: &[(String, i32)], max: usize) -> Result<Vec<Run>, pg::Error> {
    let now = db.ambient().now();
    let (names, versions): (Vec<String>, Vec<i32>) = known.iter().cloned().unzip();
    let mut upkeep = db.upkeep(UPKEEP).await?;
    // A step that is about to be called is marked as begun here: a worker that dies in it leaves no other trace.
    let rows = sqlx::query_as!(
        Row,
        r#"WITH due AS (
            SELECT id FROM saga_runs
            WHERE state IN ('running', 'undoing') AND wake_at <= $1 AND (lease_until IS NULL OR lease_until <= $1)
                AND (name, spec_version) IN (SELECT n, v FROM unnest($2::text[], $3::integer[]) AS known (n, v))
            ORDER BY wake_at LIMIT $4 FOR UPDATE SKIP LOCKED
        )
        UPDATE saga_runs r SET lease_until = $5, fence = r.fence + 1, unfinished = r.unfinished + 1,
            begun = r.begun OR (r.cancel_reason IS NULL AND r.failure IS NULL AND r.deadline > $1)
        FROM due WHERE r.id = due.id
        RETURNING r.id, r.name, r.spec_version, r.subject, r.org_id, r.state AS "state: RunState", r.input, r.outputs, r.step, r.attempt,
            r.begun, r.unfinished, r.end_attempts, r.wake_key, r.signal, r.attempt_deadline, r.failure, r.failure_code,
            r.cancel_reason, r.wake_at, r.fence, r.deadline, r.correlation_id, r.traceparent"#,
        now,
        &names,
        &versions,
        i64::try_from(max).unwrap_or(i64::MAX),
        later(now, LEASE),
    )
    .fetch_all(upkeep.conn())
    .await?;
    Ok(rows.into_iter().map(|row| Run::from_row(row, now)).collect())
}

/// The run as it stands, if it is still this worker's and not over.
pub(crate) async fn reload(db: &Db, run: &Run) -> Result<Option<Run>, pg::Error> {
    let now = db.ambient().now();
    let mut upkeep = db.upkeep(UPKEEP).await?;
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, spec_version, subject, org_id, state AS "state: RunState", input, outputs, step, attempt, begun, unfinished,
            end_attempts, wake_key, signal, attempt_deadline, failure, failure_code, cancel_reason, wake_at, fence, deadline,
            correlation_id, traceparent
         FROM saga_runs WHERE id = $1 AND fence = $2 AND lease_until > $3 AND state IN ('running', 'undoing')"#,
        run.id.uuid(),
        run.fence,
        now,
    )
    .fetch_optional(upkeep.conn())
    .await?;
    Ok(row.map(|row| Run::from_row(row, now)))
}

/// How a run is to stand from now on.
pub(crate) struct Change<'a> {
    pub progress: &'a Progress,
    pub end: Option<RunEnd>,
    /// The worker goes on with it at once, and keeps the lease.
    pub goes_on: bool,
    /// What it goes on with is the first call of a step.
    pub begins: bool,
    pub wake_key: Option<String>,
    /// What the step that is done left: its name and the value.
    pub output: Option<(&'a str, &'a Value)>,
    pub entry: Option<Entry<'a>>,
}

/// A line of the timeline.
pub(crate) struct Entry<'a> {
    pub step: &'a str,
    pub undo: bool,
    pub attempt: u32,
    pub state: StepState,
    pub failure: Option<(FailureCode, String)>,
    pub started_at: DateTime<Utc>,
}

/// What others may have changed meanwhile.
pub(crate) struct Applied {
    pub cancel: Option<String>,
    pub begun: bool,
}

/// Writes the change, if the run is still this worker's and stands as it was read: nothing was brought since, and
/// nobody cancelled what would end well. Otherwise nothing is written.
pub(crate) async fn apply(
    conn: &mut Connection,
    now: DateTime<Utc>,
    run: &Run,
    change: Change<'_>,
) -> Result<Option<Applied>, sqlx::Error> {
    let Change { progress, end, goes_on, begins, wake_key, output, entry } = change;
    let state = end.map_or(if progress.undoing { "undoing" } else { "running" }, RunEnd::name);
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let step_failure = entry.as_ref().and_then(|entry| entry.failure.as_ref());
    let over = entry.as_ref().is_some_and(|entry| entry.state != StepState::Waiting);
    let row = sqlx::query!(
        r#"WITH run AS (
            UPDATE saga_runs SET state = $4, step = $5, attempt = $6,
                begun = $7 OR ($8 AND cancel_reason IS NULL), unfinished = 0, end_attempts = $9, wake_key = $10,
                signal = NULL, attempt_deadline = $11, failure = $12, failure_code = $26,
                outputs = CASE WHEN $13::text IS NULL THEN outputs
                    ELSE outputs || jsonb_build_object($13::text, $14::jsonb) END,
                -- A cancellation that came meanwhile is looked at now, not when the sleep is over.
                wake_at = CASE WHEN cancel_reason IS NOT NULL AND $4 = 'running' AND failure IS NULL
                    THEN $3::timestamptz
                    ELSE $15::timestamptz END,
                lease_until = $16, version = version + 1, updated_at = $3::timestamptz,
                finished_at = CASE WHEN $17 THEN $3::timestamptz END
            WHERE id = $1 AND fence = $2 AND state IN ('running', 'undoing') AND (signal IS NOT NULL) = $18
                AND NOT ($4 = 'succeeded' AND cancel_reason IS NOT NULL)
            RETURNING id, cancel_reason, begun
        ), entry AS (
            INSERT INTO saga_steps (run_id, step, undo, attempt, state, detail, started_at, finished_at, failure_code)
            SELECT id, $19::text, $20::boolean, $21::integer, $22::text, $23::text, $24::timestamptz,
                    CASE WHEN $25 THEN $3::timestamptz END, $27::text
                FROM run WHERE $19::text IS NOT NULL
            ON CONFLICT (run_id, step, undo, attempt)
                DO UPDATE SET state = excluded.state, detail = excluded.detail, finished_at = excluded.finished_at,
                    failure_code = excluded.failure_code
        )
        SELECT cancel_reason, begun FROM run"#,
        run.id.uuid(),
        run.fence,
        now,
        state,
        i32::try_from(progress.step).unwrap_or(i32::MAX),
        number(progress.attempt),
        progress.begun,
        begins,
        number(progress.end_attempts),
        wake_key as Option<String>,
        progress.attempt_deadline as Option<DateTime<Utc>>,
        progress.failure.as_ref().map(|failure| failure.text.as_str()) as Option<&str>,
        output.map(|(step, _)| step) as Option<&str>,
        output.map(|(_, value)| value.clone()) as Option<Value>,
        progress.due_at,
        (goes_on && end.is_none()).then(|| later(now, LEASE)) as Option<DateTime<Utc>>,
        end.is_some(),
        run.signal.is_some(),
        entry.as_ref().map(|e| e.step) as Option<&str>,
        entry.as_ref().is_some_and(|e| e.undo),
        number(entry.as_ref().map_or(0, |e| e.attempt)),
        entry.as_ref().map_or(StepState::Done, |e| e.state).name(),
        step_failure.map_or("", |(_, text)| text.as_str()),
        entry.as_ref().map_or(now, |e| e.started_at),
        over,
        progress.failure.as_ref().map(|failure| failure.code.name()) as Option<&str>,
        step_failure.map(|(code, _)| code.name()) as Option<&str>,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Applied { cancel: row.cancel_reason, begun: row.begun }))
}

/// The worker stops: somebody else may go on at once.
pub(crate) async fn release(db: &Db, run: SagaRunId, fence: i64) -> Result<(), pg::Error> {
    let mut upkeep = db.upkeep(UPKEEP).await?;
    sqlx::query!(
        "WITH freed AS (UPDATE saga_runs SET lease_until = NULL, unfinished = 0
            WHERE id = $1 AND fence = $2 AND state IN ('running', 'undoing') RETURNING id)
         SELECT pg_notify($3, '') FROM freed",
        run.uuid(),
        fence,
        crate::CHANNEL,
    )
    .fetch_all(upkeep.conn())
    .await?;
    Ok(())
}

/// Definitions of live runs that this worker does not know, with how many runs wait for them.
pub(crate) async fn unknown(db: &Db, known: &[(String, i32)]) -> Result<Vec<(String, i32, i64)>, pg::Error> {
    let (names, versions): (Vec<String>, Vec<i32>) = known.iter().cloned().unzip();
    let mut upkeep = db.upkeep(UPKEEP).await?;
    let rows = sqlx::query!(
        r#"SELECT name, spec_version, count(*) AS "count!" FROM saga_runs
           WHERE state IN ('running', 'undoing')
               AND (name, spec_version) NOT IN (SELECT n, v FROM unnest($1::text[], $2::integer[]) AS known (n, v))
           GROUP BY name, spec_version ORDER BY name, spec_version LIMIT 100"#,
        &names,
        &versions,
    )
    .fetch_all(upkeep.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.name, row.spec_version, row.count)).collect())
}

/// Deletes runs that ended long ago, with their timelines; answers how many.
pub async fn tidy(db: &Db) -> Result<u64, pg::Error> {
    const BATCH: i64 = 1000;
    let before = db.ambient().now() - chrono::TimeDelta::days(KEPT_DAYS);
    let mut deleted = 0;
    loop {
        let mut upkeep = db.upkeep("forget old workflow runs").await?;
        let batch = sqlx::query!(
            "DELETE FROM saga_runs WHERE id IN (
                SELECT id FROM saga_runs WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)",
            before,
            BATCH,
        )
        .execute(upkeep.conn())
        .await?
        .rows_affected();
        deleted += batch;
        if batch < BATCH.unsigned_abs() {
            return Ok(deleted);
        }
    }
}

/// As if the lease had gone to another worker: for fault tests.
pub(crate) async fn steal(db: &Db, run: &Run) -> Result<(), pg::Error> {
    let mut upkeep = db.upkeep("test the loss of a lease").await?;
    sqlx::query!(
        "UPDATE saga_runs SET fence = fence + 1, lease_until = NULL WHERE id = $1 AND fence = $2",
        run.id.uuid(),
        run.fence,
    )
    .execute(upkeep.conn())
    .await?;
    Ok(())
}

/// As if somebody cancelled the run now: for fault tests.
pub(crate) async fn cancel_now(db: &Db, run: &Run) -> Result<(), pg::Error> {
    let now = db.ambient().now();
    let mut upkeep = db.upkeep("test a cancellation").await?;
    sqlx::query_scalar!(r#"SELECT saga_cancel($1, 'cancelled by a test', $2) AS "found!""#, run.subject, now)
        .fetch_one(upkeep.conn())
        .await?;
    Ok(())
}
