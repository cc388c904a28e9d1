//! What every release begins and ends with. It goes forward only: what cannot be cleaned stays fenced.

use kernel::Failure;
use saga::{RunEnd, Step, StepCx, StepError};

use super::{
    allocation_lock, allocation_lock_for_end,
    failure::{EndReason, WorkflowFailure},
    slots, tasks,
};
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState},
        events::{AllocationReleaseFailed, AllocationReleased},
    },
    store::{
        allocations::{self, Along},
        claims,
    },
};

/// The allocation, as long as it is being released.
pub async fn releasing(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = allocation_lock(cx).await?;
    if allocation.state == AllocationState::Releasing {
        Ok(allocation)
    } else {
        Err(tasks::fail(WorkflowFailure::StateChanged, ""))
    }
}

/// Its slots are being cleaned, from wherever an earlier release left them.
pub async fn begin(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = releasing(cx).await?;
    slots::to_cleaning(cx.tx, &allocation.slot_ids).await?;
    Step::done()
}

/// Proven clean: `releasing` becomes `released`, and what it held can be sold again.
pub async fn free(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = releasing(cx).await?;
    fleet::api::slots_cleaned(cx.tx, &allocation.slot_ids).await?;
    let now = cx.tx.db().ambient().now();
    claims::free(cx.tx, allocation.id, now).await?;
    allocations::step(cx.tx, &allocation, AllocationEvent::Released, Along::default()).await?;
    cx.tx.emit(&AllocationReleased { allocation_id: allocation.id, project_id: allocation.project_id })?;
    Step::done()
}

/// What could not be released is fenced, and keeps what it holds until it was.
pub async fn ended(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end == RunEnd::Succeeded {
        return Ok(());
    }
    let Some(allocation) = allocation_lock_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    if allocation.state != AllocationState::Releasing {
        return Ok(());
    }
    let reason = EndReason::of_run(cx.failure, cx.cancel_reason);
    let why = format!(
        "A release failed ({}). Repair the node, then retry the release, or force it after checking the machine.",
        cx.failure.map_or(reason.sentence.as_str(), |failure| failure.text.as_str())
    );
    slots::fence(cx.tx, &allocation.slot_ids, &why).await?;
    let along = reason.along();
    allocations::step(cx.tx, &allocation, AllocationEvent::ReleaseFailed, along).await?;
    cx.tx.emit(&AllocationReleaseFailed {
        allocation_id: allocation.id,
        project_id: allocation.project_id,
        failure_code: Some(reason.code.name().to_owned()),
        reason: reason.sentence,
    })?;
    Ok(())
}
