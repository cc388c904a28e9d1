//! Use cases: load, decide, write, emit.

pub mod disputes;
pub mod intake;
pub mod processing;
pub mod reconcile;
pub mod refunds;
pub mod topups;
