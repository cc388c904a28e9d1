//! Use cases: load, decide, write, emit.

pub mod access;
pub mod allocations;
pub mod billed;
pub mod catalog;
pub mod discrepancies;
pub mod entry;
pub mod explain;
pub mod faults;
pub mod forced;
pub mod groups;
pub mod key_removal;
pub mod launch;
pub mod launch_checks;
pub mod money;
pub mod occupants;
pub mod placing;
pub mod project_stream;
pub mod regions;
pub mod release;
pub mod resource_names;
pub mod restore;
pub mod running;
pub mod slot_cleanup;
pub mod uids;
pub mod watching;
