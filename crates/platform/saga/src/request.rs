//! What everybody else asks of runs: start one, wake one, cancel one, show what it did. Each is a function of the
//! database, so that requests of tenants can do it for their own organization, and each belongs to the
//! transaction of whoever asks.

use chrono::{DateTime, Utc};
use kernel::ids::{OrgId, SagaRunId};
use pg::{Connection, WriteTx};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{decide::later, definition::SagaDefinition, readable};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The transaction can go on: nothing was written.
    #[error("a run for this subject is in progress: wait until it has ended, or cancel it")]
    AlreadyRunning,
    #[error("the input of a run cannot be written as JSON")]
    Input(#[from] serde_json::Error),
    #[error("a run could not be started")]
    Database(#[from] sqlx::Error),
}

/// Starts a run. It begins when the transaction commits, and continues its trace.
pub async fn start<S>(
    tx: &mut WriteTx,
    definition: &SagaDefinition<S>,
    subject: &str,
    org: Option<OrgId>,
    input: &impl Serialize,
) -> Result<SagaRunId, StartError> {
    let input = serde_json::to_value(input)?;
    let (id, now) = (tx.db().ambient().id::<SagaRunId>(), tx.db().ambient().now());
    let origin = tx.permit().origin().clone();
    let started = sqlx::query_scalar!(
        r#"SELECT saga_start(ROW($1, $2, $3, $4, $5, $6, $7, $8, $9)::new_saga_run, $10) AS "started!""#,
        id.uuid(),
        definition.name,
        definition.version,
        subject,
        org.map(OrgId::uuid) as Option<Uuid>,
        input,
        later(now, definition.deadline),
        origin.correlation_id.0,
        origin.traceparent as Option<String>,
        now,
    )
    .fetch_one(tx.conn())
    .await?;
    if started { Ok(id) } else { Err(StartError::AlreadyRunning) }
}

/// Asks the live run of a subject to be taken back. False when there is none, or when it is being taken back
/// already.
pub async fn cancel(tx: &mut WriteTx, subject: &str, reason: &str) -> Result<bool, sqlx::Error> {
    let now = tx.db().ambient().now();
    sqlx::query_scalar!(r#"SELECT saga_cancel($1, $2, $3) AS "found!""#, subject, readable(reason), now)
        .fetch_one(tx.conn())
        .await
}

/// Whether a run about the subject is under way, forwards or back. For the platform only.
pub async fn is_live(conn: &mut Connection, subject: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM saga_runs WHERE subject = $1 AND state IN ('running', 'undoing')) AS "live!""#,
        subject,
    )
    .fetch_one(conn)
    .await
}

/// The runs that were about the subject before this one. For the platform only.
pub async fn runs_before(
    conn: &mut Connection,
    subject: &str,
    run: SagaRunId,
) -> Result<Vec<SagaRunId>, sqlx::Error> {
    let runs =
        sqlx::query_scalar!("SELECT id FROM saga_runs WHERE subject = $1 AND id <> $2", subject, run.uuid())
            .fetch_all(conn)
            .await?;
    Ok(runs.into_iter().map(SagaRunId::from).collect())
}

/// Brings a suspended step what it waits for. False when the key is stale: the step went on without it.
pub async fn wake(tx: &mut WriteTx, key: &str, signal: Value) -> Result<bool, sqlx::Error> {
    let Some(run) = key.split('/').next().and_then(|id| id.parse::<SagaRunId>().ok()) else {
        return Ok(false);
    };
    let now = tx.db().ambient().now();
    sqlx::query_scalar!(r#"SELECT saga_wake($1, $2, $3, $4) AS "found!""#, run.uuid(), key, signal, now)
        .fetch_one(tx.conn())
        .await
}

lifecycle::named_enum! {
    StepState = "state of a step" { Waiting = "waiting", Done = "done", Failed = "failed", Skipped = "skipped" }
}

/// One attempt of a step, forwards or back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimelineEntry {
    pub run_id: SagaRunId,
    /// Which workflow.
    pub saga: String,
    pub step: String,
    /// The step was taken back.
    pub undo: bool,
    pub attempt: u32,
    pub state: StepState,
    /// What went wrong, when something did: a stable code, and what is known beyond it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
    pub detail: String,
    pub started_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
}

const MOST_ENTRIES: i32 = 500;

struct Entry {
    run_id: Uuid,
    name: String,
    step: String,
    undo: bool,
    attempt: i32,
    state: StepState,
    failure_code: Option<String>,
    detail: String,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
}

impl From<Entry> for TimelineEntry {
    fn from(entry: Entry) -> Self {
        Self {
            run_id: entry.run_id.into(),
            saga: entry.name,
            step: entry.step,
            undo: entry.undo,
            attempt: u32::try_from(entry.attempt).unwrap_or(1),
            state: entry.state,
            failure_code: entry.failure_code,
            detail: entry.detail,
            started_at: entry.started_at,
            finished_at: entry.finished_at,
        }
    }
}

/// What the runs about a subject did, newest run first. A tenant sees those of its own organization.
pub async fn timeline(conn: &mut Connection, subject: &str) -> Result<Vec<TimelineEntry>, sqlx::Error> {
    let entries = sqlx::query_as!(
        Entry,
        r#"SELECT run_id AS "run_id!", name AS "name!", step AS "step!", undo AS "undo!", attempt AS "attempt!",
            state AS "state!: StepState", failure_code, detail AS "detail!", started_at AS "started_at!", finished_at
        FROM saga_timeline_entries($1, $2)"#,
        subject,
        MOST_ENTRIES,
    )
    .fetch_all(conn)
    .await?;
    Ok(entries.into_iter().map(TimelineEntry::from).collect())
}

/// What one run did; for the platform only.
pub(crate) async fn timeline_of(
    conn: &mut Connection,
    run: SagaRunId,
) -> Result<Vec<TimelineEntry>, sqlx::Error> {
    let entries = sqlx::query_as!(
        Entry,
        r#"SELECT s.run_id, r.name, s.step, s.undo, s.attempt, s.state AS "state: StepState", s.failure_code, s.detail, s.started_at,
             s.finished_at
         FROM saga_steps s JOIN saga_runs r ON r.id = s.run_id
         WHERE s.run_id = $1 ORDER BY s.seq LIMIT $2"#,
        run.uuid(),
        i64::from(MOST_ENTRIES),
    )
    .fetch_all(conn)
    .await?;
    Ok(entries.into_iter().map(TimelineEntry::from).collect())
}
