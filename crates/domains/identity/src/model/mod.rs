//! What identity is made of, and what it decides: plain types and pure functions.

pub mod invitation;
pub mod invitation_link;
pub mod membership;
pub mod org;
pub mod owner_label;
pub mod person;
pub mod policy;
pub mod policy_catalog;
pub mod project;
pub mod role;
pub mod sensitive_change;
pub mod service_account;
pub mod ssh_key;

/// What this domain publishes.
pub use ::events::identity as events;
