//! Refunds: where money goes back to.
