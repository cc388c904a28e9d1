//! Use cases: load, decide, write, emit.
//!
//! Every function that changes something takes the open write transaction and leaves in it the rows, the audit
//! target, the events and the cache invalidations; the caller commits. A node's trust is dropped by the key
//! `node:` with its UUID.

pub mod adoption;
pub mod agent_tasks;
pub mod census;
pub mod certificates;
pub mod completion;
pub mod contact_loss;
pub mod contacts;
pub mod credits;
pub mod dispatch;
pub mod enrollment;
pub mod findings;
pub mod grants;
pub mod health_rules;
pub mod history;
pub mod inventories;
pub mod key_waits;
pub mod logs;
pub mod node_identity;
pub mod node_trust;
pub mod nodes;
pub mod occupancy;
pub mod onboarding;
pub mod orders;
pub mod pools;
pub mod regions;
pub mod removal;
pub mod slot_steps;
pub mod slots;
pub mod task_views;
pub mod tasks;
pub mod tokens;
pub mod topologies;
pub mod tunnels;
pub mod validations;
mod withdraw;

use kernel::CorrelationId;
use pg::{Db, Origin, Permit, changed, created, found, removed};

/// The product itself acts, for a stated reason and outside any request.
pub(crate) fn by_itself(db: &Db, reason: &'static str) -> Permit {
    Permit::system(reason, Origin::internal(CorrelationId(db.ambient().uuid())))
}
