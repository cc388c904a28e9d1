//! Recordings, from the recorder through storage that tampers to the verifier.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod closing;
mod kit;
mod recording;
mod resuming;
mod tampering;
