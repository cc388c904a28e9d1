//! The trust crate against independent parties: OpenSSL reads what it issues, rustls shakes hands over it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod ca;
mod custody;
mod kit;
mod peer;
mod tls;
