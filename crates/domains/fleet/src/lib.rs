//! The fleet: nodes that trust nothing but signed work.
//!
//! **How it works.** An operator creates a node and hands its bootstrap token to the machine, once. The agent
//! there exchanges it for a certificate at the node listener (`gateway/`), is looked over (discovery), has its
//! slots approved by a person, passes a validation probe, and is active. From then on it pulls tasks by long
//! poll. A task is signed when it is queued, in the process that decided it and in the transaction of the
//! decision (`service/tasks`); the gateway only carries signed bytes, and the node checks them again. A result
//! completes whoever waits for it in the transaction that stores it ([`Completion`]).
//!
//! **What it promises.** Full write access to Postgres is not enough to run anything on a node: signers are
//! believed by a list that a key outside the database signs (`authority/`). A node is who its certificate says
//! and nobody else; a revoked one is refused at once. Being offline stops new placement and harms nobody. No
//! state changes outside its table, neither here nor in the database.

pub mod api;
pub mod authority;
pub mod gateway;
mod http;
pub mod install;
pub mod jobs;
pub mod model;
pub mod service;
mod store;

use std::{path::PathBuf, sync::Arc};

use endpoint::{Endpoint, PolicySource};
use kernel::{
    Failure,
    ids::NodeId,
    policy::{IntegerKey, Setting},
};
use pg::{Db, Wake};

pub use authority::Trust;
use model::occupant::{MOST_NAMED, NodeOccupants};
use service::occupancy::Occupancy;

pub use service::completion::{Completion, Completions, Waiter};

/// What the installation says about its fleet.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `https://host:port` of the node listener, as nodes reach it.
    pub node_url: String,
    /// Of the public API, where the install script is served.
    pub public_url: String,
    /// Where agent programs lie that nodes may fetch, each named by its SHA-256.
    pub programs_dir: PathBuf,
    /// Slots of simulated nodes need nobody to approve them.
    pub auto_approve_simulated: bool,
}

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Fleet {
    db: Db,
    trust: Trust,
    policies: Arc<dyn PolicySource>,
    settings: Arc<Settings>,
    completions: Arc<Completions>,
    node_trust: service::node_trust::NodeTrustCache,
    wake: Option<Wake>,
    programs: install::Programs,
    occupancy: Option<Arc<dyn Occupancy>>,
}

impl Fleet {
    pub fn new(
        db: Db,
        trust: Trust,
        policies: Arc<dyn PolicySource>,
        settings: Settings,
        others: Vec<Arc<dyn Completion>>,
    ) -> Self {
        let node_trust = service::node_trust::NodeTrustCache::new(&db);
        let mut parties: Vec<Arc<dyn Completion>> = vec![Arc::new(service::onboarding::Onboarder)];
        parties.extend(others);
        let completions = Arc::new(Completions::new(parties));
        let programs = install::Programs::new(settings.programs_dir.clone());
        Self {
            programs,
            db,
            trust,
            policies,
            settings: Arc::new(settings),
            completions,
            node_trust,
            wake: None,
            occupancy: None,
        }
    }

    /// With whoever knows what is on a node.
    pub fn with_occupancy(mut self, occupancy: Arc<dyn Occupancy>) -> Self {
        self.occupancy = Some(occupancy);
        self
    }

    pub(crate) async fn occupants(
        &self,
        conn: &mut pg::Connection,
        node: NodeId,
    ) -> Result<NodeOccupants, Failure> {
        match &self.occupancy {
            Some(occupancy) => occupancy.occupants(conn, node, MOST_NAMED).await,
            None => Ok(NodeOccupants::default()),
        }
    }

    /// With the notifications of the database, so that waiting for something ends at once when it comes.
    pub fn listening(mut self, wake: Wake) -> Self {
        self.wake = Some(wake);
        self
    }

    pub(crate) fn wake(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Fails when a task could end without anybody who waits for it being notified.
    pub fn check_completions(&self) -> Result<(), String> {
        let lacking =
            |waiter: Waiter| format!("{waiter:?} waits for tasks, but is not registered exactly once");
        self.completions.check().map_err(lacking)
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The agent programs on offer.
    pub fn programs(&self) -> &install::Programs {
        &self.programs
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A threshold of the whole fleet.
    pub(crate) async fn policy(&self, key: IntegerKey) -> Result<Setting, Failure> {
        self.policies.setting(key, None, None).await
    }
}

/// Every endpoint of the domain for the public API.
pub fn endpoints(fleet: Fleet) -> Vec<Endpoint> {
    let mut all = http::endpoints(&fleet);
    all.extend(install::endpoints(&fleet));
    all.extend(authority::endpoints(fleet.trust()));
    all
}
