//! Types, lifecycle tables and decisions: pure.

pub mod address;
pub mod backoff;
pub mod delivery;
pub mod events;
pub mod mail;
pub mod notice;
pub mod preferences;
pub mod signature;
pub mod webhook;
