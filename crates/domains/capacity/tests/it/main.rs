//! Capacity on a real database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod catalog;
mod consistency;
mod launch;
mod money;
mod placement;
mod recording_money;
mod release;
mod workflow;
