//! What other domains may use.

pub use crate::{Capacity, Money, service::money::Meter};
