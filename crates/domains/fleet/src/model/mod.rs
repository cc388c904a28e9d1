//! Types, lifecycle tables and decisions: pure.

pub mod events;
pub mod node;
pub mod onboarding;
pub mod slot;
pub mod task;
