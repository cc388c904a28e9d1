//! `/platform/skus`: products, sizes and prices, for operators.

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(_: &Capacity) -> Vec<Endpoint> {
    Vec::new()
}
