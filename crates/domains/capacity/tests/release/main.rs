//! How allocations end, are operated, and who may log in: on a real database, without nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod access;
mod cleanup;
mod interleaving;
mod operating;
mod world;
