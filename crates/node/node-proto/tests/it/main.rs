//! The contract between control plane and agent.
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

mod paths;
mod signing;
