//! Endpoints, one file per resource.

use endpoint::Endpoint;

use crate::Fleet;

pub fn endpoints(_fleet: &Fleet) -> Vec<Endpoint> {
    Vec::new()
}
