//! Capacity for tests of domains: allocations that were launched by the service and became active by their workflow, on
//! nodes of `testfleet` whose agent answers every task well.
//!
//! It panics with a clear message rather than returning errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failed test"
)]

mod node;

use std::sync::Arc;

use async_trait::async_trait;
use capacity::{
    Capacity, Money, Reimager,
    model::allocation::{Allocation, AllocationState},
    service::{
        allocations,
        launch::{Creator, Wanted, launch},
    },
    workflow::{
        completion,
        reimage::{Installs, Reimaging},
        sagas,
    },
};
use chrono::TimeDelta;
use identity::api::Policies;
use kernel::{
    Failure, ManualClock, Permission, Role,
    ids::{AllocationId, NodeId, ProjectId},
};
pub use node::{HOST_KEY, output};
use pg::{Actor, ActorKind, Db, Permit, Scope, Wake, WriteTx};
use saga::Engine;
use testfleet::TestFleet;

/// Installs machines anew in no time.
pub struct InstantReimager(pub Installs);

#[async_trait]
impl Reimager for InstantReimager {
    fn installs(&self) -> Installs {
        self.0
    }

    async fn begin(&self, _: NodeId, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn reimage_poll(&self, _: NodeId, _: &str) -> Result<Reimaging, Failure> {
        Ok(Reimaging::Done)
    }
}

/// What differs between tests.
pub struct Parts {
    /// The clock of the database's ambient, when the test moves it.
    pub clock: Option<Arc<ManualClock>>,
    pub policies: Policies,
    pub money: Arc<dyn Money>,
    pub reimager: Arc<dyn Reimager>,
}

/// The domain on a database, with a fleet.
pub struct TestCapacity {
    pub capacity: Capacity,
    pub fleet: TestFleet,
    pub wake: Wake,
    db: Db,
    clock: Option<Arc<ManualClock>>,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for TestCapacity {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// So many GPUs of a product, with whatever else is the default.
pub fn wanted(sku: &str, gpus: Option<i32>) -> Wanted {
    Wanted { sku: sku.to_owned(), gpus, profile: None, region: None, name: None, image: None }
}

impl TestCapacity {
    pub async fn start(db: &Db, parts: Parts) -> Self {
        let Parts { clock, policies, money, reimager } = parts;
        let of_fleet = testfleet::Parts {
            clock: clock.clone(),
            policies: Arc::new(policies.clone()),
            completions: vec![completion()],
            auto_approve_simulated: false,
        };
        let fleet = TestFleet::start(db, of_fleet).await;
        let (wake, listening) = db.listen();
        let parts = capacity::Parts { db: db.clone(), fleet: fleet.fleet.clone(), policies, money, reimager };
        let capacity = Capacity::new(parts).listening(wake.clone());
        Self { capacity, fleet, wake, db: db.clone(), clock, listening }
    }

    /// As a member of the project.
    pub async fn as_member(&self, creator: Creator, action: &'static str) -> WriteTx {
        let role = Role::ProjectMember;
        let actor = Actor { kind: ActorKind::User, id: Some(creator.principal.uuid()), role: role.name() };
        let granted = role.permissions().authorize(Permission::AllocationOperate).unwrap();
        let scope = Scope::Project(creator.org, creator.project);
        let permit = Permit::granted(actor, scope, self.fleet.origin(), granted);
        self.db.write(permit, action).await.unwrap()
    }

    /// Requested: reserved, with a workflow that nobody works yet. The creator needs an SSH key.
    pub async fn launched(&self, creator: Creator, wanted: Wanted) -> Allocation {
        let mut tx = self.as_member(creator, "allocation.create").await;
        let launched = launch(&self.capacity, &mut tx, creator, wanted).await;
        let launched = launched.unwrap_or_else(|failure| panic!("the launch was refused: {failure:?}"));
        tx.commit(None).await.unwrap();
        launched.made
    }

    /// Launched, and its workflow worked to its end. Other workflows that are due are worked as well.
    pub async fn active(&self, creator: Creator, wanted: Wanted) -> Allocation {
        let launched = self.launched(creator, wanted).await;
        let engine = Engine::new(self.db.clone(), self.wake.clone(), sagas(&self.capacity));
        for _ in 0..200 {
            let now = self.allocation(creator.project, launched.id).await;
            match now.state {
                AllocationState::Active => return now,
                AllocationState::Requested | AllocationState::Provisioning => {}
                other => panic!("{} became {other:?}: {}", now.id, now.state_reason),
            }
            if let Some(clock) = &self.clock {
                clock.advance(TimeDelta::milliseconds(1));
            }
            let worked = engine.run_once().await.unwrap();
            let answered = self.node_answer(now.node_id, now.gpus).await;
            // A step that asks again after a while.
            if worked + answered == 0 {
                match &self.clock {
                    Some(clock) => clock.advance(TimeDelta::seconds(1)),
                    None => tokio::task::yield_now().await,
                }
            }
        }
        panic!("{} did not become active", launched.id)
    }

    pub async fn allocation(&self, project: ProjectId, id: AllocationId) -> Allocation {
        let permit = Permit::system("a test reads an allocation", self.fleet.origin());
        let mut tx = self.db.read(&permit).await.unwrap();
        let (allocation, _) = allocations::with_timeline(&mut tx, id).await.unwrap();
        assert_eq!(allocation.project_id, project);
        allocation
    }
}
