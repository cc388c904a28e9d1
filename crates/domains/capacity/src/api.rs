//! What other domains may use.

pub use crate::{
    Capacity, Money,
    service::{
        entry::{Entry, entry, machine},
        money::Meter,
    },
};
