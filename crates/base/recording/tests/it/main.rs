//! Recordings, from the recorder through storage that tampers to the verifier.

#![allow(clippy::unwrap_used)]

mod kit;
mod recording;
mod resuming;
mod tampering;
