//! End a launch that lost its workflow and that somebody released: it holds nothing any more, and its slots are cleaned by
//! a workflow of their own.

use kernel::Failure;
use saga::{OnFailure, RunEnd, SagaDefinition, Step, StepCx, StepError, end_fn, step_fn};

use super::{
    allocation_lock, provision_common,
    steps::{DAY, writes},
    tasks::withdraw_of,
};
use crate::{
    Capacity,
    model::allocation::{AllocationState, ReleaseCause},
    store::allocation_ends,
};

// One that fails is begun again by the next release.
pub static ABANDON: SagaDefinition<Capacity> = SagaDefinition {
    name: "abandon_launch",
    version: 1,
    steps: &[writes("end", step_fn!(end_lost_launch))],
    deadline: DAY,
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.abandon_run",
    ended: end_fn!(ended),
};

async fn end_lost_launch(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = allocation_lock(cx).await?;
    if !matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
        return Step::done();
    }
    for lost in saga::runs_before(cx.tx.conn(), cx.subject, cx.run_id).await? {
        withdraw_of(capacity, cx, &allocation, lost).await?;
    }
    let cause = allocation.release_cause.unwrap_or(ReleaseCause::User);
    let reason = "released while it was being launched";
    provision_common::abandoned(capacity, cx.tx, &allocation, cause, reason).await?;
    let slot_ids = allocation_ends::blocked(cx.tx.conn(), allocation.id, &allocation.slot_ids).await?;
    fleet::api::slots_retry_cleaning(cx.tx, &slot_ids).await?;
    provision_common::cleanup_start(cx.tx, &allocation, slot_ids).await?;
    Step::done()
}

async fn ended(_: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end != RunEnd::Succeeded {
        let failure = cx.failure.map(|failure| failure.text.as_str());
        tracing::error!(run_id = %cx.run_id, failure, "a lost launch could not be ended; release it again");
    }
    Ok(())
}
