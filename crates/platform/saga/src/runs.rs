//! Runs as people see them: list, show, cancel.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{OrgId, SagaRunId},
    text::Reason,
};
use lifecycle::Named;
use pg::{Connection, WriteTx};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::request::{self, StepState, TimelineEntry};

lifecycle::lifecycle! {
    /// The life of a run.
    RunLifecycle = "saga_run", initial Running;
    states RunState as "SagaRunState" { Running = "running", Undoing = "undoing", Succeeded = "succeeded", Undone = "undone", Stuck = "stuck" }
    events RunEvent { TurnRound = "turn_round", Succeed = "succeed", EndUndone = "end_undone", GetStuck = "get_stuck" }
    Running on TurnRound => Undoing;
    Running on Succeed => Succeeded;
    Running on EndUndone => Undone;
    Running on GetStuck => Stuck;
    Undoing on EndUndone => Undone;
    Undoing on GetStuck => Stuck;
}

pg::named_columns! { RunState, StepState }

/// One run of a durable workflow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SagaRun {
    pub id: SagaRunId,
    /// Which workflow, and which version of its definition.
    pub name: String,
    pub spec_version: i32,
    /// Whom it is about.
    pub subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    pub state: RunState,
    /// The place of the current step in the workflow, from 0.
    pub step: u32,
    pub attempt: u32,
    /// The step waits for an answer from elsewhere.
    pub waiting: bool,
    /// It is due and no worker has taken it for a minute: perhaps none knows this version.
    pub overdue: bool,
    /// Why it goes forward no more: a stable code, and what is known beyond it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// When it is looked at next.
    pub due_at: DateTime<Utc>,
    pub deadline: DateTime<Utc>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
}

/// The same with what it did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SagaRunDetail {
    #[serde(flatten)]
    pub run: SagaRun,
    pub timeline: Vec<TimelineEntry>,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub state: Option<RunState>,
    pub name: Option<String>,
    pub subject: Option<String>,
}

struct Row {
    id: Uuid,
    name: String,
    spec_version: i32,
    subject: String,
    org_id: Option<Uuid>,
    state: RunState,
    step: i32,
    attempt: i32,
    waiting: bool,
    overdue: bool,
    failure: Option<String>,
    failure_code: Option<String>,
    cancel_reason: Option<String>,
    wake_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
}

impl From<Row> for SagaRun {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            name: row.name,
            spec_version: row.spec_version,
            subject: row.subject,
            org_id: row.org_id.map(OrgId::from),
            state: row.state,
            step: u32::try_from(row.step).unwrap_or(0),
            attempt: u32::try_from(row.attempt).unwrap_or(1),
            waiting: row.waiting,
            overdue: row.overdue,
            failure_code: row.failure_code,
            failure: row.failure,
            cancel_reason: row.cancel_reason,
            due_at: row.wake_at,
            deadline: row.deadline,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            finished_at: row.finished_at,
        }
    }
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    now: DateTime<Utc>,
    filter: &Filter,
    page: &PageQuery,
) -> Result<Page<SagaRun>, Failure> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, name, spec_version, subject, org_id, state AS "state: RunState", step, attempt,
            (wake_key IS NOT NULL AND signal IS NULL) AS "waiting!",
            (finished_at IS NULL AND greatest(wake_at, lease_until) < $6::timestamptz - interval '1 minute') AS "overdue!",
            failure, failure_code, cancel_reason, wake_at, deadline, version, created_at, updated_at, finished_at
        FROM saga_runs
        WHERE id < $1 AND ($2::text IS NULL OR state = $2) AND ($3::text IS NULL OR name = $3)
            AND ($4::text IS NULL OR subject = $4)
        ORDER BY id DESC LIMIT $5"#,
        page.before(),
        filter.state.map(Named::name) as Option<&str>,
        filter.name.as_deref() as Option<&str>,
        filter.subject.as_deref() as Option<&str>,
        page.limit(),
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(page.page(rows, |row| row.id).map(SagaRun::from))
}

pub async fn get(conn: &mut Connection, now: DateTime<Utc>, id: SagaRunId) -> Result<SagaRunDetail, Failure> {
    let run = load(conn, now, id).await?;
    let timeline = request::timeline_of(conn, id).await?;
    Ok(SagaRunDetail { run, timeline })
}

async fn load(conn: &mut Connection, now: DateTime<Utc>, id: SagaRunId) -> Result<SagaRun, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, spec_version, subject, org_id, state AS "state: RunState", step, attempt,
            (wake_key IS NOT NULL AND signal IS NULL) AS "waiting!",
            (finished_at IS NULL AND greatest(wake_at, lease_until) < $2::timestamptz - interval '1 minute') AS "overdue!",
            failure, failure_code, cancel_reason, wake_at, deadline, version, created_at, updated_at, finished_at
        FROM saga_runs WHERE id = $1"#,
        id.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.ok_or_else(|| Problem::not_found("saga_run"))?.into())
}

/// Asks for the run to be taken back; it is, from wherever it stands.
pub async fn cancel(tx: &mut WriteTx, id: SagaRunId, reason: &Reason) -> Result<SagaRun, Failure> {
    let now = tx.db().ambient().now();
    let before = load(tx.conn(), now, id).await?;
    let running = before.state == RunState::Running;
    if !running || !request::cancel(tx, &before.subject, reason.as_str()).await? {
        let text = format!("A run that is {} cannot be cancelled.", before.state.name());
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", before.state.name()).into());
    }
    let after = load(tx.conn(), now, id).await?;
    if let Some(org) = before.org_id {
        tx.audit_in_org(org);
    }
    tx.record("saga_run", id, Some(&before), Some(&after))?;
    Ok(after)
}
