//! Top-ups and their states.
