//! Adjustments.
