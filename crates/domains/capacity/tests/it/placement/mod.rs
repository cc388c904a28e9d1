//! Placement: the pure decision against a brute-force oracle, and what is decided over the database against what is
//! decided over the whole fleet.

mod database;
mod decisions;
mod explain;
mod fleets;
mod kit;
mod oracle;
mod races;

// The endpoints with people and nodes, as launches meet them.
use super::launch::world;
