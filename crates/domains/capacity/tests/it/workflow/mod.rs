//! The workflows on a real database, with a node that answers by hand: every step fails, repeats and is interrupted,
//! and after each the end is clean or can be acted on.

mod ends;
mod faults;
mod host_keys;
mod invariants;
mod key_removal;
pub mod kit;
pub mod node;
mod taken_back;
