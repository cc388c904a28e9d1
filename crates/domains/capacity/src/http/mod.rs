//! Endpoint declarations and handlers, one file per resource.

mod access;
mod allocation_events;
mod allocations;
mod catalog;
mod discrepancies;
mod explain;
mod groups;
mod operations;
mod platform;
mod restore;
mod skus;

use endpoint::Endpoint;

use crate::Capacity;

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    [
        catalog::endpoints(capacity),
        skus::endpoints(capacity),
        explain::endpoints(capacity),
        allocations::endpoints(capacity),
        allocation_events::endpoints(capacity),
        operations::endpoints(capacity),
        access::endpoints(capacity),
        groups::endpoints(capacity),
        platform::endpoints(capacity),
        discrepancies::endpoints(capacity),
        restore::endpoints(capacity),
    ]
    .into_iter()
    .flatten()
    .collect()
}
