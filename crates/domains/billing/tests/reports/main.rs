//! Reports, exports, statements, adjustments, budgets and findings, as clients meet them, over a real database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod adjustments;
mod agreement;
mod budgets;
mod findings;
mod kit;
mod paper;
mod statements;
mod usage;
