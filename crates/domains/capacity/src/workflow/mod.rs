//! The workflows: provision, release, restart, access, cleanup. Each is a saga; its steps work through signed tasks.
//!
//! **How a step works on a node.** It queues the task of its kind that the allocation's sealed order holds and
//! suspends; the end of the task wakes it in the transaction that stores the end (`completion`). A node that is away,
//! stopped or busy is asked again, a bounded number of times; one that failed or refused is not.
//!
//! **Who writes.** Each step locks the allocation first, then slots. The change of state, the slots, the claims, the
//! meter and the event of one fact are one transaction, so there is no moment in which they disagree: a slot is free
//! exactly when nobody claims it.
//!
//! **How they end.** A launch ends in `active`; or in `failed`, holding nothing, with its slots free (those of a
//! whole machine after a cleanup, as after a release), or fenced when it could not all be taken back. A release ends in `released`; or in `release_failed`, holding everything. Restart
//! and access change no state.

mod abandon;
mod cleanup;
mod completion;
mod failure;
mod key_installation;
mod key_set;
mod phases;
mod provision_common;
mod provision_machine;
mod provision_slice;
pub mod reimage;
mod release_common;
mod release_machine;
mod release_slice;
mod restart;
mod slots;
mod steps;
mod tasks;

use std::sync::Arc;

use kernel::{
    Failure,
    ids::{AllocationId, SlotId},
};
use saga::{SagaDefinition, StepCx, StepError};
use serde::{Deserialize, Serialize};

pub use abandon::ABANDON;
pub use cleanup::CLEANUP;
pub use key_installation::ACCESS;
pub(crate) use key_set::entitled_keys;
pub(crate) use provision_common::abandoned;
pub use restart::RESTART;
pub(crate) use slots::fence;

use self::{
    cleanup::CLEANUP_V1, failure::WorkflowFailure, provision_machine::PROVISION_MACHINE,
    provision_slice::PROVISION_SLICE, release_machine::RELEASE_MACHINE, release_slice::RELEASE_SLICE,
};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
    store::allocations,
};

/// From a reserved allocation to an active one, or to `failed` with everything taken back. Started with a [`LaunchInput`]
/// and `allocation.subject()`, in the transaction that reserves.
pub fn provision_saga(shape: Shape) -> &'static SagaDefinition<Capacity> {
    match shape {
        Shape::Baremetal => &PROVISION_MACHINE,
        Shape::GpuSlice | Shape::CpuVm => &PROVISION_SLICE,
    }
}

/// From `releasing` to `released`, or to `release_failed` with the slots fenced. Started with a [`LaunchInput`] and
/// `allocation.subject()`, in the transaction that sets `releasing`. It starts again from wherever an earlier one ended.
pub fn release_saga(shape: Shape) -> &'static SagaDefinition<Capacity> {
    match shape {
        Shape::Baremetal => &RELEASE_MACHINE,
        Shape::GpuSlice | Shape::CpuVm => &RELEASE_SLICE,
    }
}

/// What every workflow of an allocation is started with.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LaunchInput {
    pub allocation_id: AllocationId,
}

/// Slots of one node that an allocation left uncleaned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CleanupInput {
    pub allocation_id: AllocationId,
    pub slot_ids: Vec<SlotId>,
}

/// Every workflow, for the engine.
pub fn sagas(capacity: &Capacity) -> Vec<Arc<dyn saga::Saga>> {
    let all = [
        &PROVISION_MACHINE,
        &PROVISION_SLICE,
        &RELEASE_MACHINE,
        &RELEASE_SLICE,
        &RESTART,
        &ACCESS,
        &CLEANUP,
        &CLEANUP_V1,
        &ABANDON,
    ];
    all.into_iter().map(|definition| definition.bind(capacity.clone())).collect()
}

/// Wakes steps whose task is over. Goes to the fleet of whoever takes results.
pub fn completion() -> Arc<dyn fleet::api::Completion> {
    Arc::new(completion::WakesSteps)
}

/// Locks the allocation of the run until the step commits.
async fn allocation_lock(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let id = cx.input::<LaunchInput>()?.allocation_id;
    allocations::lock(cx.tx.conn(), id).await?.ok_or_else(|| tasks::fail(WorkflowFailure::StateChanged, ""))
}

/// The same when the run has ended: none when the input cannot be read.
async fn allocation_lock_for_end(cx: &mut StepCx<'_>) -> Result<Option<Allocation>, Failure> {
    match cx.input::<LaunchInput>() {
        Ok(input) => allocations::lock(cx.tx.conn(), input.allocation_id).await,
        Err(error) => {
            tracing::error!(run_id = %cx.run_id, error = %error, "a workflow's input cannot be read at its end");
            Ok(None)
        }
    }
}
