//! Payments against a real database: whom we believe, what is credited, what goes back, what is compared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod attempts;
mod client;
mod days;
mod disputes;
mod door;
mod kit;
mod lifecycles;
mod refunds;
mod signatures;
mod storm;
mod topups;
