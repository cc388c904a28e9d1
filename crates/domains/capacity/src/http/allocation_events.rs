//! The history of an allocation, also as a stream.

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(_: &Capacity) -> Vec<Endpoint> {
    Vec::new()
}
