//! Use cases: load, decide, write, emit.

pub mod deliveries;
pub mod invitations;
pub mod listening;
pub mod mail;
pub mod notices;
pub mod notifying;
pub mod preferences;
pub mod queue_upkeep;
pub mod sending;
pub mod watching;
pub mod webhook_client;
pub mod webhooks;
