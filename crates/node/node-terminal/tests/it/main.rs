//! Terminal sessions with real programs, over real tunnels.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod attaching;
mod cgroups;
mod client;
mod endings;
mod input;
mod kit;
mod limits;
mod output;
mod processes;
