//! Types, lifecycle tables and decisions: pure.

pub mod account;
pub mod adjustment;
pub mod balance;
pub mod budget;
pub mod budget_resource;
pub mod fault_credit;
pub mod finding;
pub mod focus;
pub mod launch_funds;
pub mod ledger_item;
pub mod meter;
pub mod particulars;
pub mod rating;
pub mod report;
pub mod spend_cap;
pub mod statement;
pub mod statement_page;

/// What this domain publishes.
pub use ::events::billing as events;
