//! What pg promises, on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod builtin;
mod plans;
mod schema_code;
mod transactions;
