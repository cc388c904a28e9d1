//! The workflows on a real database, with a node that answers by hand: every step fails, repeats and is interrupted,
//! and after each the end is clean or can be acted on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod ends;
mod faults;
mod invariants;
mod key_removal;
mod kit;
mod node;
mod taken_back;
