//! Disputes and their states.
