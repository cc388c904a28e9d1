//! What pg promises, on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod builtin;
mod plans;
mod released_functions;
mod schema_code;
mod transactions;
