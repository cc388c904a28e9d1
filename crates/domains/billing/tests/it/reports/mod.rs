//! Reports, exports, statements, adjustments, budgets and findings, as clients meet them, over a real database.

mod adjustments;
mod agreement;
mod budgets;
mod findings;
pub mod kit;
mod paper;
mod statement_pages;
mod statements;
mod usage;
