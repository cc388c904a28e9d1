//! Use cases: load, decide, write, emit.

pub mod accrual;
pub mod adjustments;
pub mod balance;
pub mod balance_checks;
pub mod budget_watch;
pub mod budgets;
pub mod chains;
pub mod checkpoints;
pub mod clock;
pub mod credits;
pub mod evaluations;
pub mod holds;
pub mod html;
pub mod ledger;
pub mod ledger_items;
pub mod pdf;
pub mod posting;
pub mod provider_findings;
pub mod reconcile;
pub mod reports;
pub mod resource_names;
pub mod spend_caps;
pub mod statement_numbers;
pub mod statements;
