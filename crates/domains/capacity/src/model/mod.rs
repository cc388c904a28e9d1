//! Types and decisions, pure.

pub mod access;
pub mod allocation;
pub mod discrepancy;
pub mod events;
pub mod group;
pub mod history;
pub mod money;
pub mod placement;
pub mod restore;
pub mod sku;
