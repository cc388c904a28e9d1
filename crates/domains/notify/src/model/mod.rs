//! Types, lifecycle tables and decisions: pure.

pub mod address;
pub mod backoff;
pub mod notice;
pub mod preferences;
pub mod webhook;
