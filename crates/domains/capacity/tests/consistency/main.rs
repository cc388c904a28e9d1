//! Records that disagree on purpose are found, records that agree are not, and looking changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod found;
mod healthy;
#[allow(dead_code, reason = "shared with other tests")]
mod kit;
mod resumed;
