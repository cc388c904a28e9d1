//! Terminals of a control plane without nodes.

use std::sync::Arc;

use identity::api::Policies;
use kernel::{ManualClock, Secret};
use objects::Objects;
use terminal::{RecordingStorage, Terminals};
use testfleet::TestFleet;
use testkit::TestDb;

pub struct Kit {
    pub terminals: Terminals,
    pub policies: Policies,
    pub fleet: TestFleet,
    _objects: tempfile::TempDir,
}

impl Kit {
    /// `clock`: that of the database's ambient, when the test moves it.
    pub async fn start(test: &TestDb, clock: Option<Arc<ManualClock>>) -> Self {
        let policies = Policies::new(test.db.clone());
        let parts = testfleet::Parts {
            clock,
            policies: Arc::new(policies.clone()),
            completions: Vec::new(),
            auto_approve_simulated: false,
        };
        let fleet = TestFleet::start(&test.db, parts).await;
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::in_directory(directory.path().to_owned());
        let recordings = RecordingStorage::new(objects, &Secret::new([7; 32])).unwrap();
        let terminals = Terminals::new(fleet.fleet.clone(), policies.clone(), recordings);
        Self { terminals, policies, fleet, _objects: directory }
    }
}
