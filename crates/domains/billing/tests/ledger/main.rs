//! The ledger on a real database: what it refuses, what is found when somebody gets past that, and what is signed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod canonical;
mod checkpoints;
mod endpoints;
mod kit;
mod months;
mod reading;
mod refusals;
mod tampering;
#[path = "../reports/kit.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod web;
