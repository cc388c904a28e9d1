//! The fleet on a real database, with real certificates and signatures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod authority;
mod capacity;
mod dispatch;
mod gateway;
mod nodes;
