//! `/projects/{project_id}/allocations`: launch, list, look, wait.

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(_: &Capacity) -> Vec<Endpoint> {
    Vec::new()
}
