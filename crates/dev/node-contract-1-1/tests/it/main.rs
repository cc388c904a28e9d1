//! Node contract 1.1, frozen, against both sides of today.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod current_agent;
mod current_gateway;
mod frozen;
mod messages;
