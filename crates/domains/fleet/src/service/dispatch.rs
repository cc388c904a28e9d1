//! Tasks on their way: handed out, checked, reported, ended.
//!
//! **Who writes.** The gateway hands out ([`tasks_lease`]) and takes results ([`result`]); operators cancel; a job ends
//! what nobody told in time. Each end is one transaction that also tells whoever waits ([`crate::Completions`]),
//! so of two that race for the same task one is first and the other finds it over.
//!
//! **On a crash.** A task that was leased and not sent, or sent and not received, is under a lease. When that has
//! lapsed and the node says that it does not hold the task, it is handed out again: the same signed bytes. A node
//! that has it under way, or done, never gets it twice; and if it did, its journal would stop it.

use chrono::TimeDelta;
use kernel::{
    Code, CorrelationId, Failure, Problem, digest,
    ids::{NodeId, TaskId},
    policy::keys,
};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::{
    Keyset, SignedTask, TaskError, TaskType, canonical,
    contract::{Ending, FailureCode, Phase, Progress, ProgressAnswer, ResultAnswer, TaskFailure, TaskResult},
    text::Base64,
};
use pg::{Origin, Permit, WriteTx};

pub use crate::store::dispatch::{Ask, LeasedTask, MOST_DELIVERIES, Ready};
use crate::{
    Fleet,
    model::task::{TaskEvent, TaskLifecycle, TaskState, TaskView},
    service::completion::{CompletedTask, TaskEnding},
    store::{self, dispatch as rows},
};

/// Phases that are kept of one task, and how long the name of one may be.
const MOST_PHASES: usize = 64;
const PHASE_NAME: usize = 64;
/// What is kept of a failure's message.
const MESSAGE: usize = 4096;

/// Hands out what waits for each of the nodes, under a lease.
pub async fn tasks_lease(fleet: &Fleet, asks: &[Ask]) -> Result<Vec<LeasedTask>, Failure> {
    let lease = TimeDelta::seconds(fleet.policy(keys::FLEET_TASK_LEASE_SECONDS).await?.get());
    let now = fleet.db().ambient().now();
    let mut upkeep = fleet.db().upkeep("lease tasks").await?;
    Ok(rows::tasks_lease(upkeep.conn(), asks, now, now + lease).await?)
}

/// For tasks that were leased and certainly not sent.
pub async fn put_back(fleet: &Fleet, leased: &[LeasedTask]) -> Result<(), Failure> {
    let mut upkeep = fleet.db().upkeep("requeue leased tasks that were not sent").await?;
    rows::put_back(upkeep.conn(), leased, fleet.db().ambient().now()).await?;
    Ok(())
}

/// Work that lies ready for these nodes, whoever was or was not told.
pub async fn ready(fleet: &Fleet, nodes: &[NodeId]) -> Result<Vec<Ready>, Failure> {
    let mut upkeep = fleet.db().upkeep("find queued tasks without a wake-up").await?;
    Ok(rows::ready(upkeep.conn(), nodes, fleet.db().ambient().now()).await?)
}

/// What may be sent. A row that is not what a signer signed for this node is ended and never leaves; the node
/// would refuse it too, but it shall not even see it.
pub async fn checked(
    fleet: &Fleet,
    node: NodeId,
    leased: Vec<LeasedTask>,
) -> Result<Vec<SignedTask>, Failure> {
    if leased.is_empty() {
        return Ok(Vec::new());
    }
    let keyset = match fleet.trust().keyset().await {
        Ok((keyset, _)) => keyset,
        Err(failure) => {
            put_back(fleet, &leased).await?;
            return Err(failure);
        }
    };
    let now = fleet.db().ambient().now();
    let mut good = Vec::with_capacity(leased.len());
    for task in leased {
        match check(&keyset, node, &task) {
            Ok(signed) => {
                metrics::counter!("node_tasks_total", "event" => "dispatched").increment(1);
                // Another delivery tells of a lease, not of us.
                if let (1, Ok(waited)) = (task.deliveries, (now - task.issued_at).to_std()) {
                    metrics::histogram!("node_task_dispatch_seconds").record(waited.as_secs_f64());
                }
                good.push(signed);
            }
            Err(reason) => reject(fleet, &task, reason).await?,
        }
    }
    Ok(good)
}

fn check(keyset: &Keyset, node: NodeId, row: &LeasedTask) -> Result<SignedTask, TaskError> {
    let signed = SignedTask {
        payload: Base64(row.payload.clone()),
        signer_version: u32::try_from(row.signer_version).map_err(|_| TaskError::UnknownSigner)?,
        signature: Base64(row.signature.clone()),
    };
    let task = signed.open(keyset)?;
    if task.node_id != node || row.node_id != node {
        return Err(TaskError::WrongNode);
    }
    let same = task.task_id == row.id
        && task.task_type == row.task_type
        && task.correlation_id == row.correlation_id
        && (task.issued_at, task.expires_at) == (row.issued_at, row.expires_at);
    if same { Ok(signed) } else { Err(TaskError::Malformed) }
}

async fn reject(fleet: &Fleet, row: &LeasedTask, reason: TaskError) -> Result<(), Failure> {
    tracing::error!(task_id = %row.id, node_id = %row.node_id, %reason, "a task row is not what was signed; it is not sent");
    metrics::counter!("node_tasks_total", "event" => "rejected").increment(1);
    let origin = Origin::internal(CorrelationId(row.correlation_id));
    let permit = Permit::system("a task row is not what a signer signed", origin.clone());
    let refusal = pg::Refusal {
        actor: permit.actor(),
        scope: permit.scope(),
        action: "task.dispatch",
        target: ("task", Some(row.id.to_string())),
        code: Code::Unprocessable,
    };
    pg::refuse(fleet.db(), refusal, &origin).await?;
    let mut tx = fleet.db().write(permit, "task.reject").await?;
    let Some(open) = rows::lock(tx.conn(), row.id).await? else { return Ok(()) };
    let Some(to) = TaskLifecycle::next(open.state, TaskEvent::Reject) else { return Ok(()) };
    let ended = rows::Ended { state: to, outcome: None, phases: None };
    finish(fleet, &mut tx, &open, ended, TaskEnding::Rejected).await?;
    tx.commit(None).await?;
    Ok(())
}

/// Writes the end, tells whoever waits, and says in the audit row what was touched.
async fn finish(
    fleet: &Fleet,
    tx: &mut WriteTx,
    task: &rows::Open,
    ended: rows::Ended<'_>,
    ending: TaskEnding,
) -> Result<(), Failure> {
    let now = fleet.db().ambient().now();
    let after = serde_json::json!({ "state": ended.state, "outcome": ended.outcome.map(|(value, _)| value) });
    let before = serde_json::json!({ "state": task.state });
    let phases = ended.phases.map(<[Phase]>::to_vec).unwrap_or_default();
    rows::end(tx.conn(), task.id, ended, now).await?;
    tx.record("task", task.id, Some(&before), Some(&after))?;
    if let (Some(kind), Some(key)) = (&task.waiting_kind, &task.waiting_key) {
        let completed = CompletedTask {
            id: task.id,
            node_id: task.node_id,
            task_type: task.task_type.clone(),
            key: key.clone(),
            ending,
            phases,
        };
        fleet.completions().notify(tx, kind, &completed).await?;
    }
    Ok(())
}

/// The first progress says that the task was started: from then on it is the node's.
pub async fn progress(
    fleet: &Fleet,
    node: NodeId,
    task: TaskId,
    told: Progress,
) -> Result<ProgressAnswer, Failure> {
    let phases = bounded(told.phases);
    let mut upkeep = fleet.db().upkeep("record the progress of a task").await?;
    if rows::progress(upkeep.conn(), node, task, &phases, fleet.db().ambient().now()).await? {
        return Ok(ProgressAnswer { cancelled: false });
    }
    match rows::state_of(upkeep.conn(), node, task).await? {
        None => Err(Problem::not_found("task").into()),
        Some(TaskState::Queued) => Err(not_handed_out().into()),
        // Over, or ended in this moment by somebody else.
        Some(_) => Ok(ProgressAnswer { cancelled: true }),
    }
}

fn not_handed_out() -> Problem {
    Problem::new(
        Code::InvalidTransition,
        "The task is not leased to the node; a node reports only on tasks that it received.",
    )
}

fn bounded(mut phases: Vec<Phase>) -> Vec<Phase> {
    phases.truncate(MOST_PHASES);
    for phase in &mut phases {
        phase.name = phase.name.chars().take(PHASE_NAME).collect();
    }
    phases
}

enum Settled {
    Written(ResultAnswer),
    /// It was told before; nothing is written.
    Known(ResultAnswer),
}

/// Stores how a task ended and tells whoever waits, in one transaction. The same again changes nothing.
pub async fn result(
    fleet: &Fleet,
    node: NodeId,
    task: TaskId,
    told: TaskResult,
    origin: &Origin,
) -> Result<ResultAnswer, Failure> {
    let permit = Permit::node("record the result of a task", node, origin.clone());
    let mut tx = fleet.db().write(permit, "task.result").await?;
    match settle(fleet, &mut tx, node, task, told).await {
        Ok(Settled::Written(answer)) => {
            tx.commit(None).await?;
            Ok(answer)
        }
        Ok(Settled::Known(answer)) => {
            tx.roll_back().await;
            Ok(answer)
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

/// Without what a gateway of the release before would not have read: the same result must have the same digest there.
fn ending_digest(ending: &Ending) -> Result<[u8; 32], Failure> {
    let mut ending = ending.clone();
    if let Ending::Failed { failure } = &mut ending {
        failure.cause = None;
    }
    Ok(digest::sha256(canonical::encode(&ending)?))
}

async fn settle(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    task: TaskId,
    told: TaskResult,
) -> Result<Settled, Failure> {
    let open = rows::lock(tx.conn(), task).await?;
    // Another node's task is as unknown to this one as none at all.
    let open = open.filter(|open| open.node_id == node).ok_or_else(|| Problem::not_found("task"))?;
    tx.continues(CorrelationId(open.correlation_id), open.traceparent.clone());
    let told_digest = ending_digest(&told.ending)?;
    match open.state {
        TaskState::Dispatched | TaskState::Running => {}
        TaskState::Succeeded | TaskState::Failed if open.outcome_digest.is_some() => {
            if open.outcome_digest.as_deref() == Some(&told_digest[..]) {
                return Ok(Settled::Known(ResultAnswer { counted: true }));
            }
            let text = "The task already ended with another result.";
            return Err(Problem::new(Code::Conflict, text).into());
        }
        TaskState::Expired | TaskState::Cancelled | TaskState::Succeeded | TaskState::Failed => {
            return late(fleet, tx, &open, &told.ending).await;
        }
        TaskState::Queued => return Err(not_handed_out().into()),
    }
    let ending = believable(&open.task_type, told.ending);
    let event = if matches!(ending, Ending::Succeeded { .. }) { TaskEvent::Succeed } else { TaskEvent::Fail };
    let Some(to) = TaskLifecycle::next(open.state, event) else { return Err(not_handed_out().into()) };
    let outcome = serde_json::to_value(&ending)?;
    let phases = bounded(told.phases);
    let ended = rows::Ended {
        state: to,
        outcome: Some((&outcome, &told_digest)),
        phases: (!phases.is_empty()).then_some(&phases[..]),
    };
    finish(fleet, tx, &open, ended, TaskEnding::Reported(ending)).await?;
    metrics::counter!("node_tasks_total", "event" => to.name()).increment(1);
    Ok(Settled::Written(ResultAnswer { counted: true }))
}

/// After its end a result is evidence, and only the first one is kept.
async fn late(fleet: &Fleet, tx: &mut WriteTx, task: &rows::Open, told: &Ending) -> Result<Settled, Failure> {
    let answer = ResultAnswer { counted: false };
    if task.has_late_outcome {
        return Ok(Settled::Known(answer));
    }
    metrics::counter!("node_tasks_total", "event" => "late").increment(1);
    let outcome = serde_json::to_value(told)?;
    rows::keep_late(tx.conn(), task.id, &outcome, fleet.db().ambient().now()).await?;
    let after = serde_json::json!({ "state": task.state, "late_outcome": outcome });
    tx.record("task", task.id, Some(&serde_json::json!({ "state": task.state })), Some(&after))?;
    Ok(Settled::Written(answer))
}

/// A success whose output does not have the form of its kind is no success: whoever waits could not read it.
fn believable(task_type: &str, ending: Ending) -> Ending {
    match ending {
        Ending::Succeeded { output } => {
            match TaskType::parse(task_type)
                .ok_or(())
                .and_then(|kind| kind.output_fits(&output).map_err(|_| ()))
            {
                Ok(()) => Ending::Succeeded { output },
                Err(()) => Ending::Failed {
                    failure: TaskFailure::new(
                        FailureCode::Invalid,
                        "The node reported a success whose output does not match the task kind.",
                    ),
                },
            }
        }
        Ending::Failed { failure } => {
            let message = failure.message.chars().take(MESSAGE).collect();
            Ending::Failed { failure: TaskFailure { message, ..failure } }
        }
        refused @ Ending::Refused { .. } => refused,
    }
}

/// Nobody wants it any more. What the node has begun it may finish; its result will not count.
pub async fn cancel(
    fleet: &Fleet,
    tx: &mut WriteTx,
    task: TaskId,
    if_match: Option<i64>,
) -> Result<TaskView, Failure> {
    let open = rows::lock(tx.conn(), task).await?.ok_or_else(|| Problem::not_found("task"))?;
    if if_match.is_some_and(|version| version != open.version) {
        return Err(Problem::version_conflict(open.version).into());
    }
    let Some(to) = TaskLifecycle::next(open.state, TaskEvent::Cancel) else {
        let problem = Problem::new(Code::InvalidTransition, format!("The task is already {}.", open.state));
        return Err(problem.detail("state", open.state.name()).into());
    };
    let ended = rows::Ended { state: to, outcome: None, phases: None };
    finish(fleet, tx, &open, ended, TaskEnding::Cancelled).await?;
    metrics::counter!("node_tasks_total", "event" => to.name()).increment(1);
    let view = store::task_views::get(tx.conn(), task).await?;
    Ok(view.ok_or_else(|| Problem::not_found("task"))?)
}

/// Ends tasks whose time is over, each in a transaction of its own, `page` at a time; those that cannot be ended do
/// not keep others waiting. Returns how many were ended.
pub async fn expire_overdue(fleet: &Fleet, page: i64) -> Result<usize, Failure> {
    let (mut after, mut ended) = (None, 0);
    loop {
        let overdue = {
            let mut upkeep = fleet.db().upkeep("find expired tasks").await?;
            rows::overdue(upkeep.conn(), fleet.db().ambient().now(), after, page).await?
        };
        after = overdue.last().copied();
        ended += expire(fleet, overdue).await?;
        if after.is_none() {
            return Ok(ended);
        }
    }
}

async fn expire(fleet: &Fleet, overdue: Vec<rows::Place>) -> Result<usize, Failure> {
    let now = fleet.db().ambient().now();
    let mut ended = 0;
    for (_, task) in overdue {
        let origin = Origin::internal(CorrelationId(fleet.db().ambient().uuid()));
        let permit = Permit::system("a task expired", origin);
        let mut tx = fleet.db().write(permit, "task.expire").await?;
        let open = rows::lock(tx.conn(), task).await?.filter(|open| open.expires_at <= now);
        let Some((open, to)) =
            open.and_then(|open| TaskLifecycle::next(open.state, TaskEvent::Expire).map(|to| (open, to)))
        else {
            tx.roll_back().await;
            continue;
        };
        tx.continues(CorrelationId(open.correlation_id), open.traceparent.clone());
        let row = rows::Ended { state: to, outcome: None, phases: None };
        match finish(fleet, &mut tx, &open, row, TaskEnding::Expired).await {
            Ok(()) => {
                tx.commit(None).await?;
                metrics::counter!("node_tasks_total", "event" => to.name()).increment(1);
                ended += 1;
            }
            // One that cannot be told must not keep the others waiting.
            Err(failure) => {
                tracing::error!(task_id = %task, error = ?failure, "an expired task could not be ended");
                tx.roll_back().await;
            }
        }
    }
    Ok(ended)
}
