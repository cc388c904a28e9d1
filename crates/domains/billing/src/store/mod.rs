//! SQL: the only writer of this domain's tables.

pub mod accounts;
pub mod adjustments;
pub mod balance_checks;
pub mod budget_rows;
pub mod budgets;
pub mod chains;
pub mod checkpoints;
pub mod consistency_queries;
pub mod evaluations;
pub mod fault_credits;
pub mod findings;
pub mod ledger;
pub mod ledger_items;
pub mod meters;
pub mod pauses;
pub mod provider_findings;
pub mod reports;
pub mod spend_caps;
pub mod statement_numbers;
pub mod statements;

use crate::model::{
    account::PostingKind,
    adjustment::AdjustmentState,
    balance::BalanceState,
    fault_credit::ReviewCause,
    finding::BillingFindingKind,
    meter::{MeterSource, MeterUnit},
    report::UsageKind,
};

pg::named_columns! {
    AdjustmentState, BalanceState, BillingFindingKind, MeterSource, MeterUnit, PostingKind,
    ReviewCause, UsageKind,
}
