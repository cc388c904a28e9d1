//! Sagas on a real database: every promise of the crate's front page, with a clock moved by hand.

// Helpers here are test code too, but the lints see only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::large_futures)]

mod conformance;
mod ends;
mod http;
mod race;
mod requests;
mod support;
mod waits;
