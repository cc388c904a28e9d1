//! Capacity: products, placement, allocations, and the workflows that turn a request into a GPU and back.
//!
//! **How it works.** A request is decided by one pure function (`model/placement`) over the few nodes that the
//! database found to fit best, and reserved in the same transaction: allocation, claims, limits, audit, events and
//! the run of the workflow, or nothing. The workflow (`workflow/`, on the `saga` crate) does the work on the node
//! through signed tasks and ends in `active` or in `failed` with everything taken back. Release goes the other way
//! and ends in `released`, or in `release_failed` with the capacity fenced until a person has looked.
//!
//! **What it promises.** No slot is claimed twice and no node both whole and by slots: the database refuses it. An
//! allocation changes its state in one place (`store/allocations::step`), by compare-and-swap, with history and
//! event in the same transaction. The meter runs from `active` to `releasing` and never else. What a workflow does
//! on a node is what the request authorised, word for word: the order is sealed with a key that the database does
//! not have (`fleet::api::Order`).

pub mod api;
mod http;
pub mod jobs;
pub mod model;
pub mod service;
mod store;
pub mod workflow;

use std::sync::Arc;

use endpoint::Endpoint;
use fleet::api::Fleet;
use identity::api::Policies;
use pg::{Db, Wake};

pub use service::{
    billed::Billed,
    money::{Money, Unbilled},
    occupants::occupancy,
    resource_names::CapacityNames,
    running::ActiveAllocations,
};
pub use workflow::reimage::Reimager;

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Capacity {
    db: Db,
    fleet: Fleet,
    policies: Policies,
    money: Arc<dyn Money>,
    reimager: Arc<dyn Reimager>,
    catalog: service::catalog::Catalog,
    uids: service::uids::Uids,
    regions: service::regions::Regions,
    streams: endpoint::Streams,
    wake: Option<Wake>,
}

/// What the composition root wires in.
pub struct Parts {
    pub db: Db,
    pub fleet: Fleet,
    pub policies: Policies,
    pub money: Arc<dyn Money>,
    pub reimager: Arc<dyn Reimager>,
}

impl Capacity {
    pub fn new(parts: Parts) -> Self {
        let Parts { db, fleet, policies, money, reimager } = parts;
        let catalog = service::catalog::Catalog::new(&db);
        Self {
            db,
            fleet,
            policies,
            money,
            reimager,
            catalog,
            uids: service::uids::Uids::default(),
            regions: service::regions::Regions::default(),
            streams: service::watching::streams(),
            wake: None,
        }
    }

    /// With the notifications of the database, so that waiting for something ends at once when it comes.
    pub fn listening(mut self, wake: Wake) -> Self {
        self.wake = Some(wake);
        self
    }

    pub fn db(&self) -> &Db {
        &self.db
    }
}

/// Every endpoint of the domain.
pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    http::endpoints(capacity)
}
