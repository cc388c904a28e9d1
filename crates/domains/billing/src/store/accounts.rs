//! Balance states.
