//! What nodes could take: counted right whatever happens, found in the order of the packing rule, without a scan and
//! without anybody waiting in a circle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test support: a failure is a failed test")]

mod candidates;
mod counts;
mod kit;
mod plans;
mod steps;
