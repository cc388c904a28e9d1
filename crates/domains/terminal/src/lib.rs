//! Terminals: ways into machines that only dial out.
//!
//! **How it works.** Whoever may enter a machine mints a token (`service/tokens`): random, for one use, for a few minutes. The
//! same request signs a grant for the node and seals it with the token, so that the database alone opens nothing. A client
//! shows the token to any gateway (`gateway/`), which consumes it in one statement, opens the grant with it, and opens a
//! stream to the node through its tunnel. From then on bytes go both ways; a session lives on the node and outlives the
//! client, the gateway and the control plane.
//!
//! **What it promises.** A token works once, for one person, one machine and one session, and never stands in a URL. A slow
//! client slows the program down and nobody else: what is on its way is bounded at every step. Whoever loses the right to enter
//! loses an open terminal within seconds. Output is counted in bytes, so that a client which comes again gets exactly what it
//! misses.

pub mod gateway;
mod http;
pub mod jobs;
pub mod model;
pub mod service;
mod store;

use capacity::api::Entry;
use endpoint::{Caller, Endpoint};
use fleet::api::Fleet;
use identity::api::{Policies, Where};
use kernel::{Failure, policy::IntegerKey};
use pg::Db;
pub use service::recording_storage::RecordingStorage;

/// The domain as the composition root holds it. Cheap to clone; making one connects to nothing.
#[derive(Clone)]
pub struct Terminals {
    db: Db,
    fleet: Fleet,
    policies: Policies,
    recordings: RecordingStorage,
}

impl Terminals {
    pub fn new(fleet: Fleet, policies: Policies, recordings: RecordingStorage) -> Self {
        Self { db: fleet.db().clone(), fleet, policies, recordings }
    }

    async fn setting(&self, key: IntegerKey, entry: &Entry, caller: &Caller) -> Result<i64, Failure> {
        let place = Where { org: Some(entry.org_id), project: Some(entry.project_id), user: caller.user() };
        Ok(self.policies.setting_at(key, place).await?.get())
    }
}

/// Every endpoint of the domain.
pub fn endpoints(terminals: &Terminals) -> Vec<Endpoint> {
    http::endpoints(terminals)
}
