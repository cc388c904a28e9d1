//! Why something can or cannot be launched.

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(_: &Capacity) -> Vec<Endpoint> {
    Vec::new()
}
