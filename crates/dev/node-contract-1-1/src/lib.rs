//! Version 1.1 of the node contract, as it was: its messages, an agent and a gateway that speak it.
//!
//! **Frozen.** Nothing here follows `node-proto`, and nothing here is edited to make a test pass: when a test
//! fails, the current side has broken the contract. When a new minor version is released, this crate is
//! replaced by one for the version before it.
//!
//! - [`messages`]: the wire types of 1.1, written out once more. `messages/*.json` are the words themselves.
//! - [`signed`]: the canonical spelling, signatures, and the checks of 1.1.
//! - [`agent`]: a small agent that enrols, works, reports, renews and updates itself; its work is made up.
//! - [`gateway`]: a small gateway in this process that hands out signed tasks over mutual TLS.
//!
//! Both sides ignore fields that they do not know, as 1.1 did. This crate is for tests only: it panics with a
//! clear message where a program would report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failed test"
)]

pub mod agent;
mod authority;
pub mod gateway;
pub mod messages;
pub mod signed;
mod tls;

pub const CONTRACT: &str = "1.1";
pub const CONTRACT_HEADER: &str = "x-gpuaas-node-contract";
pub const TIME_HEADER: &str = "x-gpuaas-time-ms";
