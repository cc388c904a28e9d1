//! Use cases: load, decide, write, emit.

pub mod mail;
pub mod notices;
pub mod preferences;
pub mod telling;
pub mod watching;
pub mod webhooks;
