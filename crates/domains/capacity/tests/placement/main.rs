//! Placement: the pure decision against a brute-force oracle, and what is decided over the database against what is
//! decided over the whole fleet.

// Helpers here are test code too, but the lints see only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod database;
mod decisions;
mod explain;
mod fleets;
mod kit;
mod oracle;
mod races;

// The endpoints with people and nodes, as launches meet them.
#[path = "../launch/world.rs"]
#[allow(dead_code, reason = "only a part of it is needed here")]
mod world;
