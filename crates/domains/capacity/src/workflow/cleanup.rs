//! Clean slots that a launch left behind, with the order of its allocation. The allocation itself is over. A whole machine
//! is treated as after a release: somebody may have been on it.

use kernel::Failure;
use node_proto::catalog::{DeprovisionUser, ProbeProfile, VmRelease};
use saga::{OnFailure, RunEnd, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    CleanupInput, allocation_lock, allocation_lock_for_end,
    failure::WorkflowFailure,
    release_machine,
    release_slice::proven_clean,
    slots,
    steps::{DAY, polls, waits, writes},
    tasks,
};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
};

// Installing is a step of its own: a probe that is retried must not install the machine again.
pub static CLEANUP: SagaDefinition<Capacity> = SagaDefinition {
    name: "cleanup",
    version: 2,
    steps: &[
        writes("begin", step_fn!(begin)),
        waits("clean", step_fn!(clean), resume_fn!(cleaned)),
        polls("reimage", step_fn!(reimage)),
        waits("verify", step_fn!(verify), resume_fn!(verify_reported)),
        writes("free", step_fn!(free)),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Stuck,
    audit_action: "slot.cleanup_run",
    ended: end_fn!(ended),
};

// For runs that the release before began; `verify` installs the machine as well.
pub static CLEANUP_V1: SagaDefinition<Capacity> = SagaDefinition {
    name: "cleanup",
    version: 1,
    steps: &[
        writes("begin", step_fn!(begin)),
        waits("clean", step_fn!(clean), resume_fn!(cleaned)),
        waits("verify", step_fn!(reimage_and_verify), resume_fn!(verify_reported)),
        writes("free", step_fn!(free)),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Stuck,
    audit_action: "slot.cleanup_run",
    ended: end_fn!(ended),
};

/// The allocation, if nobody else sees to its slots.
async fn left(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = allocation_lock(cx).await?;
    if allocation.state.is_over() {
        Ok(allocation)
    } else {
        Err(tasks::fail(WorkflowFailure::StateChanged, ""))
    }
}

async fn begin(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    left(cx).await?;
    let input: CleanupInput = cx.input()?;
    slots::to_cleaning(cx.tx, &input.slot_ids).await?;
    Step::done()
}

async fn clean(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = left(cx).await?;
    match allocation.shape {
        Shape::Baremetal => {
            tasks::ordered::<DeprovisionUser>(capacity, cx, &allocation, &allocation.work_order).await
        }
        Shape::GpuSlice | Shape::CpuVm => {
            tasks::ordered::<VmRelease>(capacity, cx, &allocation, &allocation.work_order).await
        }
    }
}

async fn cleaned(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = left(cx).await?;
    match allocation.shape {
        Shape::Baremetal => drop(tasks::answer::<DeprovisionUser>(signal)?),
        Shape::GpuSlice | Shape::CpuVm => {
            let answer = tasks::answer::<VmRelease>(signal)?;
            proven_clean(cx, &allocation, &answer.output).await?;
        }
    }
    Step::done()
}

/// A whole machine is installed anew when its product says so.
async fn reimage(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = release_machine::unlocked(cx).await?;
    if allocation.shape == Shape::Baremetal
        && let Some(wait) = release_machine::reimage(capacity, cx, &allocation).await?
    {
        return Ok(wait);
    }
    Step::done()
}

async fn verify(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = left(cx).await?;
    match allocation.shape {
        Shape::Baremetal => {
            if let Some(wait) = release_machine::new_key(cx, &allocation).await? {
                return Ok(wait);
            }
            tasks::probe(capacity, cx, &allocation, ProbeProfile::BetweenTenants).await
        }
        // The node proved it when it cleaned.
        Shape::GpuSlice | Shape::CpuVm => Step::done(),
    }
}

async fn reimage_and_verify(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    match reimage(capacity, cx).await? {
        Step::Done(_) => verify(capacity, cx).await,
        wait => Ok(wait),
    }
}

async fn verify_reported(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = left(cx).await?;
    release_machine::verified(cx, &allocation, signal).await
}

async fn free(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = left(cx).await?;
    let input: CleanupInput = cx.input()?;
    if allocation.shape == Shape::Baremetal {
        release_machine::require_verified(cx)?;
    }
    fleet::api::slots_cleaned(cx.tx, &input.slot_ids).await?;
    Step::done()
}

async fn ended(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end == RunEnd::Succeeded {
        return Ok(());
    }
    let input: CleanupInput = cx.input().map_err(|error| Failure::bug(error.to_string()))?;
    if let Some(allocation) = allocation_lock_for_end(cx).await? {
        tasks::withdraw(capacity, cx, &allocation).await?;
    }
    let why = format!(
        "The retried cleanup failed ({}). Repair the node and retry, or force the cleanup after checking the machine.",
        cx.failure.map_or("", |failure| failure.text.as_str())
    );
    slots::fence(cx.tx, &input.slot_ids, &why).await
}
