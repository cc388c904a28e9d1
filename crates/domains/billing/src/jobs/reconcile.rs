//! Reconciles, and lists what it found.
