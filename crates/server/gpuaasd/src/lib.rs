//! The composition root: reads the configuration, wires the roles, and holds no domain logic.
//!
//! Start-up order: telemetry → operations listener (so that a slow start can be watched) → database, built
//! in or external → roles and schema → keys → the roles' listeners and workers → ready. Shutdown goes the
//! other way: not ready → no new connections → open requests and workers finish, within a limit → database.
//!
//! Promises: every problem of the configuration is reported at once; a start that fails says what to do and
//! leaves nothing running; a stop loses nothing that was answered.

mod client_address;
mod compose;
pub mod config;
mod consumers;
mod database;
pub mod documents;
mod first_admin;
mod home;
mod master_key;
mod money;
mod object_storage;
mod open_files;
mod restore;
pub mod roles;
pub mod run;
pub mod secret_file;
mod serve;
mod signing;
mod simulated_fleet;
mod terminals;
mod upkeep;
mod web;
