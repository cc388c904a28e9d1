//! The ledger on a real database: what it refuses, what is found when somebody gets past that, and what is signed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod canonical;
mod checkpoints;
mod kit;
mod months;
mod reading;
mod refusals;
mod tampering;
