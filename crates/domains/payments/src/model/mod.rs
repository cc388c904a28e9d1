//! Types, lifecycle tables and decisions: pure.

pub mod day;
pub mod dispute;
pub mod events;
pub mod refund;
pub mod topup;
pub mod webhook;
pub mod wire;
