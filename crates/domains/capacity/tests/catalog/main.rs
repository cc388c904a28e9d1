//! Products, prices and what is free, on a real database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod availability;
mod http;
#[path = "../consistency/kit.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod kit;
mod prices;
mod products;
