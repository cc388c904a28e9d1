//! Allocations with real money: what a launch sets aside, what ends when it is used up, and what sick hardware gives
//! back. On a real database; the workflows are the real ones, and time is made by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod bank;
mod budgets;
mod credits;
mod depletion;
mod failed_launches;
mod fault_reviews;
mod fault_times;
mod funds;
mod races;

#[path = "../workflow/kit.rs"]
#[allow(dead_code, reason = "the workflows' own tests use more of it")]
mod kit;
#[path = "../workflow/node.rs"]
#[allow(dead_code, reason = "the workflows' own tests use more of it")]
mod node;
#[path = "../launch/world.rs"]
#[allow(dead_code, reason = "the tests of launches use more of it")]
mod world;
