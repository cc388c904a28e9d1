//! Tunnels over real sockets and mutual TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod bytes_flow;
mod endings;
mod grants;
mod kit;
