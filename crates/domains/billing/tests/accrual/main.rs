//! What is used becomes what is owed: exactly, once, whoever crashes, races or steps the clock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod budgets;
mod crashes;
mod kit;
mod property;
mod races;
mod restart;
mod skew;
mod states;
mod time;
mod worker;
