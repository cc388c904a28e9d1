//! Use cases.

pub mod logs;
pub mod recording_storage;
pub mod recording_upkeep;
pub mod recordings;
pub mod sessions;
pub mod ssh_tokens;
pub mod tokens;
pub mod upkeep;
