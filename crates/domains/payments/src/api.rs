//! What other domains may use.

pub use crate::Payments;
