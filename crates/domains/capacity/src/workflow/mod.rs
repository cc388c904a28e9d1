//! The workflows: provision, release, restart, access, cleanup. Each is a saga; its steps work through signed tasks.

mod completion;
pub mod reimage;
mod specs;

use std::sync::Arc;

use kernel::ids::{AllocationId, SlotId};
use serde::{Deserialize, Serialize};

pub use specs::{access_spec, cleanup_spec, provision_spec, release_spec, restart_spec};

use crate::Capacity;

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
pub fn sagas(_capacity: &Capacity) -> Vec<Arc<dyn saga::Saga>> {
    Vec::new()
}

/// Wakes steps whose task is over. Goes to the fleet of whoever takes results.
pub fn completion() -> Arc<dyn fleet::api::Completion> {
    Arc::new(completion::WakesSteps)
}
