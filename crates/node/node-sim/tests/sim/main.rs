//! The simulator from outside: what its machines are made of, what its faults do, and that nothing runs twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod at_most_once;
mod control_plane;
mod gateway;
mod machines;
mod playing;
mod repeatable;
mod script;
mod terminals;
