//! Tasks handed out, reported and ended, on a real database and by several at once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test support: a failure is a failed test")]

mod claims;
mod endings;
mod kit;
mod orders;
