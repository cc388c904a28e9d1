//! Use cases: load, decide, write, emit.

pub mod completion;
pub mod standing;
pub mod tasks;
