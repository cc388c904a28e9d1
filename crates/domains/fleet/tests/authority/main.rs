//! Authorities and signers against a real database and real key files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod authorities;
mod first;
mod kit;
mod signers;
mod tampering;
