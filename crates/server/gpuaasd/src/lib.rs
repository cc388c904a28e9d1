//! The composition root: reads the configuration, wires the roles, and holds no domain logic.
pub mod config;
pub mod master_key;
pub mod roles;
pub mod serve;
