//! SQL: the only writer of the fleet's tables.

pub mod tasks;
