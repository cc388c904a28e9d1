//! A fleet for tests of domains: regions, and nodes that enrolled, were discovered, approved and proven by the services
//! of fleet, with an agent that answers by hand.
//!
//! It panics with a clear message rather than returning errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failed test"
)]

mod machine;

use std::sync::Arc;

use chrono::TimeDelta;
use endpoint::PolicySource;
use fleet::{
    Completion, Fleet, Settings,
    authority::{Signing, Trust, TrustSettings},
    model::{
        node::{Node, NodeDetail, NodeState},
        slot::Approval,
        text::{Hostname, Labels, RegionCode},
    },
    service::{
        contacts::{Contact, Contacts},
        dispatch::{self, Ask, LeasedTask},
        enrollment::enroll,
        nodes::{NodeRequest, node_create, node_get},
        onboarding,
        regions::region_create,
        slots::node_slots_approve,
    },
};
use kernel::{
    CorrelationId, Failure, ManualClock, Permission, Role, Secret,
    ids::{NodeId, TaskId},
    text::Name,
};
pub use machine::{
    blocker, candidate, csr, pci, report, succeeded, topology, topology_in_numa_nodes, topology_of,
};
use node_proto::{
    catalog::Topology,
    contract::{Ending, EnrollRequest, Enrolled, ResultAnswer, TaskResult},
};
use pg::{Actor, ActorKind, Db, Origin, Permit, ReadTx, Scope, WriteTx};
use tempfile::TempDir;
use trust::signer::FileCustody;

/// The domain on a database, with an operator.
pub struct TestFleet {
    pub fleet: Fleet,
    db: Db,
    clock: Option<Arc<ManualClock>>,
    operator: uuid::Uuid,
    _home: TempDir,
}

/// What differs between tests.
pub struct Parts {
    /// The clock of the database's ambient, when the test moves it.
    pub clock: Option<Arc<ManualClock>>,
    pub policies: Arc<dyn PolicySource>,
    /// Who waits for tasks.
    pub completions: Vec<Arc<dyn Completion>>,
    pub auto_approve_simulated: bool,
}

impl TestFleet {
    pub async fn start(db: &Db, parts: Parts) -> Self {
        let home = tempfile::tempdir().unwrap();
        let custody = FileCustody::open(home.path().join("task-signing")).unwrap();
        let settings = TrustSettings {
            trust_domain: "gpuaas.test".to_owned(),
            master_key: Secret::new([7; 32]),
            signing: Signing::Custody(Arc::new(custody)),
        };
        let trust = Trust::new(db.clone(), settings).unwrap();
        trust.ensure().await.unwrap();
        let settings = Settings {
            node_url: "https://nodes.gpuaas.test:8443".to_owned(),
            public_url: "https://gpuaas.test".to_owned(),
            programs_dir: home.path().join("programs"),
            auto_approve_simulated: parts.auto_approve_simulated,
        };
        let fleet = Fleet::new(db.clone(), trust, parts.policies, settings, parts.completions);
        let operator = db.ambient().uuid();
        Self { fleet, db: db.clone(), clock: parts.clock, operator, _home: home }
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.db.ambient().uuid()))
    }

    /// Ids sort by time, so it is a little later each time where the clock is moved by hand.
    fn moment_passes(&self) {
        if let Some(clock) = &self.clock {
            clock.advance(TimeDelta::milliseconds(1));
        }
    }

    /// The right of an operator.
    pub fn permit(&self) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(self.operator), role: Role::PlatformOps.name() };
        let granted = Role::PlatformOps.permissions().authorize(Permission::FleetManage).unwrap();
        Permit::granted(actor, Scope::Platform, self.origin(), granted)
    }

    pub async fn write(&self, action: &'static str) -> WriteTx {
        self.moment_passes();
        self.db.write(self.permit(), action).await.unwrap()
    }

    pub async fn read(&self) -> ReadTx {
        self.db.read(&self.permit()).await.unwrap()
    }

    pub async fn region(&self, code: &str) {
        let mut tx = self.write("region.create").await;
        let (code, name) = (RegionCode::parse(code).unwrap(), Name::parse(code).unwrap());
        region_create(&mut tx, code, name).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    /// A node that has not enrolled, with its bootstrap token.
    pub async fn node_created(&self, region: &str, hostname: &str, simulated: bool) -> (Node, String) {
        let mut tx = self.write("node.create").await;
        let request = NodeRequest {
            hostname: Hostname::parse(hostname).unwrap(),
            region: RegionCode::parse(region).unwrap(),
            pool: None,
            labels: Labels::default(),
            sku_eligibility: Vec::new(),
            serves: Default::default(),
            simulated,
            ssh: Default::default(),
        };
        let (node, issued) = node_create(&self.fleet, &mut tx, request).await.unwrap();
        tx.commit(None).await.unwrap();
        let issued = serde_json::to_value(&issued).unwrap();
        (node, issued["token"].as_str().expect("a token").to_owned())
    }

    pub fn enrolment(&self, node: &Node, token: &str) -> EnrollRequest {
        EnrollRequest {
            node_id: node.id,
            token: token.to_owned(),
            csr_pem: csr(),
            hostname: node.hostname.clone(),
            agent_version: "1.0.0".to_owned(),
            machine_id: "m".to_owned(),
        }
    }

    pub async fn enroll(&self, node: &Node, token: &str) -> Result<Enrolled, Failure> {
        enroll(&self.fleet, &self.enrolment(node, token), &self.origin()).await
    }

    /// A node that serves: enrolled, discovered, approved and proven.
    pub async fn node_active(&self, region: &str, hostname: &str, topology: &Topology) -> Node {
        let (node, token) = self.node_created(region, hostname, false).await;
        self.enroll(&node, &token).await.unwrap();
        self.onboarding_begin(node.id).await;
        self.answer(node.id, succeeded(topology)).await;
        self.approve_all(node.id).await.unwrap();
        self.answer(node.id, succeeded(&report(true))).await;
        let node = self.detail(node.id).await.node;
        assert_eq!(node.state, NodeState::Active);
        node
    }

    /// What the consumer does when it hears that a node enrolled.
    pub async fn onboarding_begin(&self, node: NodeId) {
        self.moment_passes();
        let permit = Permit::system("test", self.origin());
        let mut tx = self.db.write(permit, "node.onboard").await.unwrap();
        onboarding::begin(&self.fleet, &mut tx, node).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    pub async fn approve_all(&self, node: NodeId) -> Result<TaskId, Failure> {
        let mut tx = self.write("node.slots_approve").await;
        let (_, task) = node_slots_approve(&self.fleet, &mut tx, node, &Approval::AllReady, None).await?;
        tx.commit(None).await.unwrap();
        Ok(task)
    }

    pub async fn tasks_lease(&self, node: NodeId) -> Vec<LeasedTask> {
        let ask = Ask { node, room: 16, holding: Some(Vec::new()) };
        dispatch::tasks_lease(&self.fleet, &[ask]).await.unwrap()
    }

    /// Takes the only task that waits for the node and ends it so.
    pub async fn answer(&self, node: NodeId, ending: Ending) -> TaskId {
        let leased = self.tasks_lease(node).await;
        assert_eq!(leased.len(), 1, "one task waits: {leased:?}");
        self.result_report(node, leased[0].id, ending).await.unwrap();
        leased[0].id
    }

    pub async fn result_report(
        &self,
        node: NodeId,
        task: TaskId,
        ending: Ending,
    ) -> Result<ResultAnswer, Failure> {
        self.moment_passes();
        let told = TaskResult { ending, phases: Vec::new() };
        dispatch::result(&self.fleet, node, task, told, &self.origin()).await
    }

    /// What a node without tenants reports now.
    pub fn contact(&self, node: NodeId) -> Contact {
        self.moment_passes();
        let now = self.db.ambient().now();
        Contact {
            node,
            seen_at: now,
            agent_version: "1.0.0".to_owned(),
            contract: "1.1".to_owned(),
            certificate_expires_at: now + TimeDelta::days(1),
            applied_version: 0,
            keyset_serial: 0,
            authority_ids: Vec::new(),
            clock_offset_ms: 0,
            boot_id: "b".to_owned(),
            metrics: serde_json::json!({}),
            inventory: serde_json::json!({}),
        }
    }

    /// The report of a node is kept.
    pub async fn contact_keep(&self, contact: Contact) {
        let contacts = Contacts::new(&self.fleet);
        contacts.note(contact, false).unwrap();
        contacts.flush(&self.fleet).await.unwrap();
    }

    pub async fn detail(&self, node: NodeId) -> NodeDetail {
        node_get(&self.fleet, &mut self.read().await, node).await.unwrap()
    }
}
