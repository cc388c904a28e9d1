//! Types, lifecycle tables and decisions: pure.

pub mod day;
pub mod dispute;
pub mod refund;
pub mod topup;
pub mod webhook;
pub mod wire;

/// What this domain publishes.
pub use ::events::payments as events;
