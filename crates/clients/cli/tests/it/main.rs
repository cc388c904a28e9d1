//! The program against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod allocations;
mod allocations_of_operators;
mod audit;
mod completion;
mod examples;
mod failures;
mod fleet;
mod kit;
mod money;
mod node_logs;
mod operations;
mod recordings;
mod restored;
mod sample;
mod second_person;
mod service_accounts;
mod settlements;
mod signing_in;
mod tables;
mod tenants;
mod terminal;
mod trust;
mod webhooks;
