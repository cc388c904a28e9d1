//! Top-ups.
