//! The FOCUS-shaped export.
