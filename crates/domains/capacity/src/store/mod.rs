//! SQL: the only writer of this domain's tables.

pub mod access;
pub mod affected_allocations;
pub mod allocation_ends;
pub mod allocation_events;
pub mod allocations;
pub mod candidates;
pub mod catalog;
pub mod claims;
pub mod discrepancies;
pub mod groups;
pub mod machine_keys;
pub mod occupants;
pub mod progress;
pub mod reserve;
pub mod resource_names;
pub mod restore;
pub mod running;
pub mod uids;

use crate::model::{
    allocation::{AllocationState, Shape},
    discrepancy::{DiscrepancyKind, DiscrepancyState},
    history::HistoryKind,
    restore::Decision,
    sku::{PriceUnit, ResourceClass},
};

pg::named_columns! {
    AllocationState, Decision, DiscrepancyKind, DiscrepancyState, HistoryKind, PriceUnit, ResourceClass, Shape,
}
