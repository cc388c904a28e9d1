//! Types, lifecycle tables and decisions: pure.

pub mod certificate;
pub mod contact;
pub mod contract_version;
pub mod credit_finding;
pub mod finding;
pub mod health_rule;
pub mod inventory;
pub mod join_warning;
pub mod log;
pub mod node;
pub mod occupant;
pub mod onboarding;
pub mod page;
pub mod pool;
pub mod reconcile;
pub mod region;
pub mod slot;
pub mod task;
pub mod text;
pub mod token;
pub mod topology;
pub mod waiter;

/// What this domain publishes.
pub use ::events::fleet as events;
