//! The program against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod allocations;
mod allocations_of_operators;
mod audit;
mod failures;
mod fleet;
mod kit;
mod money;
mod operations;
mod restored;
mod second_person;
mod settlements;
mod signing_in;
mod tenants;
