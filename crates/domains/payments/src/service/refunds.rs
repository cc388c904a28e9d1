//! Refunds.
