//! Terminals on a real database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod kit;
mod losing_access;
mod upkeep;
