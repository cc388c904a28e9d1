//! Placement: which slots of which nodes, or why none.

mod types;

pub use types::*;
