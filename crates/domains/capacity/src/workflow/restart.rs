//! Restart the machine of an active allocation. Whatever comes of it, the allocation stays what it is.

use kernel::Failure;
use node_proto::catalog::{HealthProbe, ProbeProfile, Reboot, VmRestart};
use saga::{OnFailure, RunEnd, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    allocation_lock, allocation_lock_for_end,
    failure::{EndReason, WorkflowFailure},
    provision_machine::check_passed,
    steps::{DAY, waits},
    tasks,
};
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationState, Shape},
        history::HistoryKind,
    },
    store::progress,
};

// One that fails leaves nothing to take back and nothing for a person to see to: it can be asked for again.
pub static RESTART: SagaDefinition<Capacity> = SagaDefinition {
    name: "restart",
    version: 1,
    steps: &[
        waits("restart", step_fn!(restart), resume_fn!(restarted)),
        waits("check", step_fn!(check), resume_fn!(checked)),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.restart_run",
    ended: end_fn!(ended),
};

async fn active(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = allocation_lock(cx).await?;
    if allocation.state == AllocationState::Active {
        Ok(allocation)
    } else {
        Err(tasks::fail(WorkflowFailure::StateChanged, ""))
    }
}

async fn restart(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = active(cx).await?;
    let Some(order) = &allocation.restart_order else {
        return Err(tasks::fail(WorkflowFailure::NotOrdered, ""));
    };
    match allocation.shape {
        Shape::Baremetal => tasks::ordered::<Reboot>(capacity, cx, &allocation, order).await,
        Shape::GpuSlice | Shape::CpuVm => tasks::ordered::<VmRestart>(capacity, cx, &allocation, order).await,
    }
}

async fn restarted(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = active(cx).await?;
    match allocation.shape {
        Shape::Baremetal => drop(tasks::answer::<Reboot>(signal)?),
        Shape::GpuSlice | Shape::CpuVm => {
            let answer = tasks::answer::<VmRestart>(signal)?;
            if i64::from(answer.output.gpus_visible) != i64::from(allocation.gpus) {
                return Err(tasks::fail(WorkflowFailure::GpusMissing, ""));
            }
        }
    }
    Step::done()
}

async fn check(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = active(cx).await?;
    match allocation.shape {
        Shape::Baremetal => tasks::probe(capacity, cx, &allocation, ProbeProfile::Light).await,
        // It said what it sees when it was back.
        Shape::GpuSlice | Shape::CpuVm => Step::done(),
    }
}

async fn checked(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = active(cx).await?;
    check_passed(&tasks::answer::<HealthProbe>(signal)?.output, allocation.gpus)?;
    Step::done()
}

async fn ended(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    let Some(allocation) = allocation_lock_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    let reason = EndReason::of_run(cx.failure, cx.cancel_reason).sentence;
    let (name, reason) = match end {
        RunEnd::Succeeded => ("restarted", ""),
        RunEnd::Undone | RunEnd::Stuck => ("restart_failed", reason.as_str()),
    };
    let line = progress::Line { name: name.to_owned(), reason, duration_ms: None };
    progress::history(cx.tx, &allocation, HistoryKind::Operation, &[line]).await
}
