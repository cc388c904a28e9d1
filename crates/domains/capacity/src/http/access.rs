//! Who may log in to an allocation.

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(_: &Capacity) -> Vec<Endpoint> {
    Vec::new()
}
