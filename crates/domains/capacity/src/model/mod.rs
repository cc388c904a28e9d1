//! Types and decisions, pure.

pub mod access;
pub mod allocation;
pub mod discrepancy;
pub mod group;
pub mod history;
pub mod launch_warning;
pub mod money;
pub mod placement;
pub mod restore;
pub mod sku;

/// What this domain publishes.
pub use ::events::capacity as events;
