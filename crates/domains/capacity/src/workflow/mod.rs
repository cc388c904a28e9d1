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
mod access;
mod cleanup;
mod completion;
mod launch;
mod phases;
mod provision_machine;
mod provision_slice;
pub mod reimage;
mod release;
mod release_machine;
mod release_slice;
mod restart;
mod slots;
mod specs;
mod tasks;
mod words;

use std::sync::Arc;

use kernel::{
    Failure,
    ids::{AllocationId, SlotId},
};
use saga::{StepCx, StepError};
use serde::{Deserialize, Serialize};

pub(crate) use launch::abandoned;
pub(crate) use slots::fence;
pub use specs::{abandon_spec, access_spec, cleanup_spec, provision_spec, release_spec, restart_spec};

use crate::{Capacity, model::allocation::Allocation, store::allocations};

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

/// The code behind every specification, for the engine.
pub fn sagas(capacity: &Capacity) -> Vec<Arc<dyn saga::Saga>> {
    vec![
        Arc::new(provision_machine::ProvisionMachine(capacity.clone())),
        Arc::new(provision_slice::ProvisionSlice(capacity.clone())),
        Arc::new(release_machine::ReleaseMachine(capacity.clone())),
        Arc::new(release_slice::ReleaseSlice(capacity.clone())),
        Arc::new(restart::Restart(capacity.clone())),
        Arc::new(access::Access(capacity.clone())),
        Arc::new(cleanup::Cleanup::new(capacity.clone())),
        Arc::new(cleanup::Cleanup::v1(capacity.clone())),
        Arc::new(abandon::Abandon(capacity.clone())),
    ]
}

/// Wakes steps whose task is over. Goes to the fleet of whoever takes results.
pub fn completion() -> Arc<dyn fleet::api::Completion> {
    Arc::new(completion::WakesSteps)
}

/// The allocation that the run is about, held until the step commits.
async fn held(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let id = cx.input::<LaunchInput>()?.allocation_id;
    allocations::lock(cx.tx.conn(), id).await?.ok_or_else(|| StepError::fail(words::MOVED_ON))
}

/// The same when the run is over: an input that cannot be read names none.
async fn held_for_end(cx: &mut StepCx<'_>) -> Result<Option<Allocation>, Failure> {
    match cx.input::<LaunchInput>() {
        Ok(input) => allocations::lock(cx.tx.conn(), input.allocation_id).await,
        Err(error) => {
            tracing::error!(run_id = %cx.run_id, error = error.reason(), "a workflow's input cannot be read at its end");
            Ok(None)
        }
    }
}
