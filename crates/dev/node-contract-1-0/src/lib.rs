//! Version 1.0 of the node contract, as it was: its messages, an agent and a gateway that speak it.
//!
//! **Frozen.** Nothing here follows `node-proto`, and nothing here is edited to make a test pass: when a test
//! fails, the current side has broken the contract. When a new minor version is released, this crate is
//! replaced by one for the version before it.
//!
//! - [`messages`]: the wire types of 1.0, written out once more. `messages/*.json` are the words themselves.
//! - [`signed`]: the canonical spelling, signatures, and the checks of 1.0.
//! - [`agent`]: a small agent that enrols, works, reports and renews; its work is made up.
//! - [`gateway`]: a small gateway in this process that hands out signed tasks over mutual TLS.
//!
//! Both sides ignore fields that they do not know, as 1.0 did. This crate is for tests only: it panics with a
//! clear message where a program would report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failed test"
)]

pub mod agent;
pub mod gateway;
pub mod messages;
pub mod signed;

pub const CONTRACT: &str = "1.0";
pub const CONTRACT_HEADER: &str = "x-gpuaas-node-contract";
pub const TIME_HEADER: &str = "x-gpuaas-time-ms";
