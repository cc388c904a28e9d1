//! A step's work on the node: queued, waited for, and read.

use chrono::TimeDelta;
use fleet::api::{ORDER_LATE, OrderedRequest, TaskEnding, TaskRequest, Waiter, Waiting};
use identity::api::Where;
use kernel::{
    Failure,
    ids::{SagaRunId, TaskId},
    policy::keys,
};
use node_proto::{
    TaskError, TaskKind,
    catalog::{HealthProbe, HealthProbeInput, KeyRemovalKind, KeySetKind, ProbeProfile},
    contract::{Ending, FailureCause, FailureCode, Phase, TaskFailure},
};
use saga::{Signal, Step, StepCx, StepError};

use super::{completion::TaskOver, failure::WorkflowFailure};
use crate::{Capacity, model::allocation::Allocation};

/// Queues exactly the work of this kind that the order holds, and waits for it.
pub async fn ordered<K: TaskKind>(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    order: &[u8],
) -> Result<Step, StepError> {
    let request = request(capacity, cx).await?;
    let queued = capacity.fleet.task_queue_ordered::<K>(cx.tx, order, &allocation.subject(), request).await;
    if in_time(queued)? {
        Ok(Step::Suspended)
    } else {
        Err(fail(WorkflowFailure::OrderExpired, K::TYPE.name()))
    }
}

/// The same for a set of keys, of which only those in `keep` are sent. False: the order came too late, and nothing was
/// queued.
pub async fn ordered_keys<K: KeySetKind>(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    order: &[u8],
    keep: &[String],
) -> Result<bool, StepError> {
    let (request, subject) = (request(capacity, cx).await?, allocation.subject());
    let fleet = &capacity.fleet;
    Ok(in_time(fleet.task_queue_ordered_keys::<K>(cx.tx, order, &subject, keep, request).await)?)
}

/// Queues work that only takes keys from the machine, and waits for it.
pub async fn key_removal<K: KeyRemovalKind>(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    input: &K::Input,
) -> Result<Step, StepError> {
    let (request, subject) = (request(capacity, cx).await?, allocation.subject());
    let fleet = &capacity.fleet;
    fleet.task_queue_key_removal::<K>(cx.tx, &allocation.work_order, &subject, input, request).await?;
    Ok(Step::Suspended)
}

async fn request(capacity: &Capacity, cx: &StepCx<'_>) -> Result<OrderedRequest, StepError> {
    Ok(OrderedRequest {
        attempt: cx.attempt,
        good_for: good_for(capacity).await?,
        waiting: Some(waiting(cx)),
    })
}

/// Whether the order still authorised the work.
fn in_time(queued: Result<TaskId, Failure>) -> Result<bool, Failure> {
    match queued {
        Ok(_) => Ok(true),
        Err(Failure::Problem(late)) if late.details.get("reason").is_some_and(|r| r == ORDER_LATE) => {
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// Has the node looked over, which needs no order.
pub async fn probe(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    profile: ProbeProfile,
) -> Result<Step, StepError> {
    let request = TaskRequest::<HealthProbe> {
        node: allocation.node_id,
        input: HealthProbeInput {
            profile,
            expected_gpus: u32::try_from(allocation.gpus).unwrap_or_default(),
        },
        attempt: cx.attempt,
        good_for: good_for(capacity).await?,
        waiting: Some(waiting(cx)),
    };
    capacity.fleet.task_queue(cx.tx, request).await?;
    Ok(Step::Suspended)
}

fn waiting(cx: &StepCx<'_>) -> Waiting {
    Waiting { waiter: Waiter::SagaStep, key: cx.wake_key() }
}

async fn good_for(capacity: &Capacity) -> Result<TimeDelta, StepError> {
    let key = keys::CAPACITY_TASK_SECONDS;
    Ok(TimeDelta::seconds(capacity.policies.setting_at(key, Where::default()).await?.get()))
}

/// Ends what the run still has open at the node: it goes another way now, or is over. Otherwise a task that got lost
/// on its way could be handed out again after the one that takes it back.
pub async fn withdraw(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
) -> Result<(), Failure> {
    withdraw_of(capacity, cx, allocation, cx.run_id).await
}

/// The same for what another run of the allocation, which is over, left open.
pub async fn withdraw_of(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    run: SagaRunId,
) -> Result<(), Failure> {
    let prefix = format!("{run}/");
    let fleet = &capacity.fleet;
    let withdrawn = fleet.tasks_withdraw(cx.tx, allocation.node_id, Waiter::SagaStep, &prefix).await?;
    if !withdrawn.is_empty() {
        // Ending tasks made them the target of the audit row.
        cx.tx.record("saga_run", cx.run_id, None::<&()>, None::<&()>)?;
    }
    Ok(())
}

/// How a task ended well.
pub struct Answer<T> {
    pub task: TaskId,
    pub output: T,
    pub phases: Vec<Phase>,
}

/// The answer to the task of this kind; or why there is none, and whether another attempt may do better.
pub fn answer<K: TaskKind>(signal: &Signal) -> Result<Answer<K::Output>, StepError> {
    let Signal::Woken(brought) = signal else { return Err(retry(WorkflowFailure::NodeSilent, "timeout")) };
    let over: TaskOver = serde_json::from_value(brought.clone())?;
    let ending = match over.ending {
        TaskEnding::Reported(ending) => ending,
        TaskEnding::Expired => return Err(retry(WorkflowFailure::NodeSilent, "expired")),
        TaskEnding::Cancelled => return Err(fail(WorkflowFailure::TaskCancelled, "cancelled")),
        TaskEnding::Rejected => return Err(fail(WorkflowFailure::NodeRefused, "not what was signed")),
    };
    let failure = match ending {
        Ending::Succeeded { output } => {
            let output = serde_json::from_value(output)
                .map_err(|_| fail(WorkflowFailure::AnswerUnreadable, K::TYPE.name()))?;
            return Ok(Answer { task: over.task_id, output, phases: over.phases });
        }
        Ending::Refused { reason: TaskError::Expired } => {
            return Err(retry(WorkflowFailure::NodeSilent, "refused as expired"));
        }
        Ending::Refused { reason } => return Err(fail(WorkflowFailure::NodeRefused, &reason.to_string())),
        Ending::Failed { failure } => failure,
    };
    tracing::warn!(task_id = %over.task_id, task_type = K::TYPE.name(), code = ?failure.code,
        message = failure.message, "a task of a workflow failed on its node");
    Err(failed(&failure))
}

fn failed(failure: &TaskFailure) -> StepError {
    match (failure.code, failure.cause) {
        (FailureCode::Timeout, _) => retry(WorkflowFailure::NodeSilent, "timeout on the node"),
        (FailureCode::Interrupted, _) => retry(WorkflowFailure::NodeInterrupted, "interrupted"),
        (FailureCode::Journal, _) => retry(WorkflowFailure::NodeBusy, "journal"),
        // Nobody undrains it because we ask again.
        (FailureCode::Unavailable, Some(FailureCause::Drained)) => {
            fail(WorkflowFailure::NodeDrained, "drained")
        }
        (FailureCode::Unavailable, Some(FailureCause::Other) | None) => {
            retry(WorkflowFailure::NodeBusy, "unavailable")
        }
        (FailureCode::Driver, _) => fail(WorkflowFailure::NodeFailed, "driver"),
        (FailureCode::Invalid, _) => fail(WorkflowFailure::NodeFailed, "invalid"),
        (FailureCode::Cancelled, _) => fail(WorkflowFailure::TaskCancelled, "cancelled on the node"),
    }
}

/// Another attempt may do better. Operators read the sentence and the detail.
pub fn retry(code: WorkflowFailure, detail: &str) -> StepError {
    StepError::retry(code, text(code, detail))
}

/// No attempt can do better.
pub fn fail(code: WorkflowFailure, detail: &str) -> StepError {
    StepError::fail(code, text(code, detail))
}

fn text(code: WorkflowFailure, detail: &str) -> String {
    if detail.is_empty() { code.sentence().to_owned() } else { format!("{} ({detail})", code.sentence()) }
}
