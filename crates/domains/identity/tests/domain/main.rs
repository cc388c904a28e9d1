//! Identity against a real Postgres: what only the database and the code together can show.

// Helpers here are test code too, but the lints see only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit_trail;
mod lifecycles;
mod policies;
mod races;
mod refusal_repeats;
mod sensitive_changes;
mod service_account_keys;
mod tenancy;
mod world;
