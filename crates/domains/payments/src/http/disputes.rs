//! Disputes.

use endpoint::Endpoint;

use crate::Payments;

pub fn endpoints(_: &Payments) -> Vec<Endpoint> {
    Vec::new()
}
