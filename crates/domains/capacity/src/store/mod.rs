//! SQL: the only writer of this domain's tables.

pub mod access;
pub mod allocations;
pub mod candidates;
pub mod catalog;
pub mod claims;
pub mod concerned;
pub mod discrepancies;
pub mod endings;
pub mod events;
pub mod groups;
pub mod machine_keys;
pub mod progress;
pub mod reserve;
pub mod restore;
pub mod running;
pub mod uids;
