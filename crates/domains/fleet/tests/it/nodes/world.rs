//! An installation with a fleet: a database, a clock that is moved by hand, an operator.

use fleet::model::node::NodeState;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use fleet::{
    Fleet, Settings,
    authority::{Signing, Trust, TrustSettings},
    model::{
        node::{Node, NodeDetail, NodeEvent},
        slot::Slot,
        text::{Hostname, Labels, RegionCode},
    },
    service::{
        dispatch::{self, Ask, Claimed},
        enrollment::enroll,
        nodes::{NodeRequest, node_create, node_get, transition},
        regions::region_create,
        slots::slot_list,
    },
};
use kernel::{
    Ambient, Code, CorrelationId, Entropy, Failure, ManualClock, PageQuery, Permission, Role, Secret,
    ids::{NodeId, TaskId},
    text::{Name, Reason},
};
use node_proto::{
    catalog::{
        Blocker, CandidateSlot, GpuReading, HealthReport, KernelFacts, ProbeCheck, ProbeProfile, SlotKind,
        Topology,
    },
    contract::{Ending, EnrollRequest, Enrolled, ResultAnswer, TaskResult},
};
use pg::{Actor, ActorKind, Origin, Permit, ReadTx, Roles, Scope, WriteTx};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use testkit::TestDb;
use trust::signer::FileCustody;

struct Random(Ambient);

impl Entropy for Random {
    fn fill(&self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

pub struct World {
    pub fleet: Fleet,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    operator: uuid::Uuid,
    _home: tempfile::TempDir,
}

pub const REGION: &str = "eu-north";

impl World {
    pub async fn new() -> Self {
        Self::with(false).await
    }

    pub async fn with(auto_approve_simulated: bool) -> Self {
        let (clock, ambient) = Self::time();
        let test = TestDb::create_with(ambient).await;
        let world = Self::around(test, clock, auto_approve_simulated).await;
        let mut tx = world.write("region.create").await;
        region_create(&mut tx, RegionCode::parse(REGION).unwrap(), Name::parse("North").unwrap())
            .await
            .unwrap();
        tx.commit(None).await.unwrap();
        world
    }

    /// On a database that has its region already.
    pub async fn on(mut test: TestDb) -> Self {
        let (clock, ambient) = Self::time();
        test.db = pg::Db::new(test.connect.clone(), 4, 4, ambient);
        Self::around(test, clock, false).await
    }

    fn time() -> (Arc<ManualClock>, Ambient) {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        (clock.clone(), Ambient::new(clock, Arc::new(Random(Ambient::system()))))
    }

    async fn around(test: TestDb, clock: Arc<ManualClock>, auto_approve_simulated: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        let custody = FileCustody::open(home.path().join("task-signing")).unwrap();
        let settings = TrustSettings {
            trust_domain: "gpuaas.test".to_owned(),
            master_key: Secret::new([7; 32]),
            signing: Signing::Custody(Arc::new(custody)),
        };
        let trust = Trust::new(test.db.clone(), settings).unwrap();
        trust.ensure().await.unwrap();
        let settings = Settings {
            node_url: "https://nodes.gpuaas.test:8443".to_owned(),
            public_url: "https://gpuaas.test".to_owned(),
            programs_dir: home.path().join("programs"),
            auto_approve_simulated,
        };
        let policies = Arc::new(identity::api::Policies::new(test.db.clone()));
        let fleet = Fleet::new(test.db.clone(), trust, policies, settings, Vec::new());
        let operator = test.db.ambient().uuid();
        Self { fleet, test, clock, operator, _home: home }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, time: TimeDelta) {
        self.clock.advance(time);
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    /// The right of an operator.
    pub fn permit(&self) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(self.operator), role: Role::PlatformOps.name() };
        let granted = Role::PlatformOps.permissions().authorize(Permission::FleetManage).unwrap();
        Permit::granted(actor, Scope::Platform, self.origin(), granted)
    }

    /// Ids sort by time, so it is a little later each time.
    pub async fn write(&self, action: &'static str) -> WriteTx {
        self.pass(TimeDelta::milliseconds(1));
        self.test.db.write(self.permit(), action).await.unwrap()
    }

    pub async fn read(&self) -> ReadTx {
        self.test.db.read(&self.permit()).await.unwrap()
    }

    /// A node that has not enrolled, with its bootstrap token.
    pub async fn node(&self, hostname: &str) -> (Node, String) {
        self.node_like(hostname, false).await
    }

    pub async fn node_like(&self, hostname: &str, simulated: bool) -> (Node, String) {
        let mut tx = self.write("node.create").await;
        let request = NodeRequest {
            hostname: Hostname::parse(hostname).unwrap(),
            region: RegionCode::parse(REGION).unwrap(),
            pool: None,
            labels: Labels::default(),
            sku_eligibility: Vec::new(),
            serves: Default::default(),
            simulated,
            ssh: Default::default(),
        };
        let (node, issued) = node_create(&self.fleet, &mut tx, request).await.unwrap();
        tx.commit(None).await.unwrap();
        (node, text(&serde_json::to_value(&issued).unwrap()["token"]))
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

    pub async fn enrolled(&self, hostname: &str) -> Node {
        let (node, token) = self.node(hostname).await;
        self.enroll(&node, &token).await.unwrap();
        self.detail(node.id).await.node
    }

    /// A node that serves: enrolled, discovered, approved and proven.
    pub async fn active(&self, hostname: &str, gpus: usize) -> Node {
        let node = self.enrolled(hostname).await;
        self.begin(node.id).await;
        self.answer(node.id, succeeded(&topology(gpus, 0))).await;
        self.approve_all(node.id).await.unwrap();
        self.answer(node.id, succeeded(&report(true))).await;
        let node = self.detail(node.id).await.node;
        assert_eq!(node.state, NodeState::Active);
        node
    }

    /// What the consumer does when it hears that a node enrolled.
    pub async fn begin(&self, node: NodeId) {
        self.pass(TimeDelta::milliseconds(1));
        let permit = Permit::system("test", self.origin());
        let mut tx = self.test.db.write(permit, "node.onboard").await.unwrap();
        fleet::service::onboarding::begin(&self.fleet, &mut tx, node).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    pub async fn approve_all(&self, node: NodeId) -> Result<TaskId, Failure> {
        let mut tx = self.write("node.slots_approve").await;
        let all = fleet::model::slot::Approval::AllReady;
        let (_, task) =
            fleet::service::slots::node_slots_approve(&self.fleet, &mut tx, node, &all, None).await?;
        tx.commit(None).await.unwrap();
        Ok(task)
    }

    pub async fn claim(&self, node: NodeId) -> Vec<Claimed> {
        let ask = Ask { node, room: 16, holding: Some(Vec::new()) };
        dispatch::claim(&self.fleet, &[ask]).await.unwrap()
    }

    /// Takes the only task that waits for the node and ends it so.
    pub async fn answer(&self, node: NodeId, ending: Ending) -> TaskId {
        let claimed = self.claim(node).await;
        assert_eq!(claimed.len(), 1, "one task waits: {claimed:?}");
        self.tell(node, claimed[0].id, ending).await.unwrap();
        claimed[0].id
    }

    pub async fn tell(&self, node: NodeId, task: TaskId, ending: Ending) -> Result<ResultAnswer, Failure> {
        self.pass(TimeDelta::milliseconds(1));
        let told = TaskResult { ending, phases: Vec::new() };
        dispatch::result(&self.fleet, node, task, told, &self.origin()).await
    }

    pub async fn detail(&self, node: NodeId) -> NodeDetail {
        node_get(&self.fleet, &mut self.read().await, node).await.unwrap()
    }

    pub async fn state(&self, node: NodeId) -> String {
        self.detail(node).await.node.state.to_string()
    }

    pub async fn slots(&self, node: NodeId) -> Vec<Slot> {
        let filter = fleet::service::slots::SlotFilter { node: Some(node), ..Default::default() };
        let mut slots = slot_list(&mut self.read().await, filter, &PageQuery::default()).await.unwrap().items;
        slots.sort_by_key(|slot| slot.slot_index);
        slots
    }

    pub async fn transition(&self, node: NodeId, event: NodeEvent) -> Result<Node, Failure> {
        let mut tx = self.write("node.test").await;
        let after = transition(&mut tx, node, event, "a test says so").await?;
        tx.commit(None).await.unwrap();
        Ok(after)
    }

    /// The node was heard of just now.
    pub async fn heard(&self, node: NodeId) {
        self.sql(&format!(
            "INSERT INTO node_contacts (node_id, first_seen_at, last_seen_at, agent_version, contract)
             VALUES ('{}', '{1}', '{1}', '1.0.0', '1.1')
             ON CONFLICT (node_id) DO UPDATE SET last_seen_at = excluded.last_seen_at",
            node.uuid(),
            self.now().to_rfc3339(),
        ))
        .await;
    }

    /// The serial number of the node's newest certificate.
    pub async fn serial(&self, node: NodeId) -> String {
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql = "SELECT serial FROM node_certificates WHERE node_id = $1 ORDER BY revoked_at IS NULL DESC, created_at DESC, serial LIMIT 1";
        sqlx::query_scalar(sql).bind(node.uuid()).fetch_one(&mut admin).await.unwrap()
    }

    pub async fn count(&self, sql: &str) -> i64 {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut admin)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs SQL as the superuser, with every trigger.
    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    /// Runs SQL as the superuser, past every trigger.
    pub async fn tamper(&self, sql: &str) {
        self.test.sql(&format!("SET session_replication_role = replica; {sql}")).await;
    }

    /// Codes of refused enrolments, oldest first.
    pub async fn refusals(&self) -> Vec<String> {
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql =
            "SELECT code FROM audit_logs WHERE action = 'node.enroll' AND result = 'refused' ORDER BY seq";
        sqlx::query_scalar(sql).fetch_all(&mut admin).await.unwrap()
    }

    pub async fn events(&self, event_type: &str) -> Vec<Value> {
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql = "SELECT payload FROM outbox_events WHERE event_type = $1 ORDER BY position";
        sqlx::query_scalar(sql).bind(event_type).fetch_all(&mut admin).await.unwrap()
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

pub fn reason(text: &str) -> Reason {
    Reason::parse(text).unwrap()
}

pub fn code<T>(result: Result<T, Failure>) -> Option<Code> {
    match result {
        Ok(_) => None,
        Err(Failure::Problem(problem)) => Some(problem.code),
        Err(internal) => panic!("{internal:?}"),
    }
}

pub fn csr() -> String {
    let key = KeyPair::generate().unwrap();
    CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap()
}

pub fn succeeded<T: serde::Serialize>(output: &T) -> Ending {
    Ending::Succeeded { output: serde_json::to_value(output).unwrap() }
}

pub fn pci(n: usize) -> String {
    format!("0000:{:02x}:00.0", 0x10 + n)
}

pub fn candidate(n: usize) -> CandidateSlot {
    CandidateSlot {
        slot_index: u32::try_from(n).unwrap(),
        kind: SlotKind::Gpu,
        pci_address: Some(pci(n)),
        model: "H200".to_owned(),
        iommu_group: Some(u32::try_from(n).unwrap()),
        nvme_device: Some(format!("nvme-{n}")),
        numa_node: Some(0),
        fabric_vf: Some(format!("0000:a0:00.{n}")),
        blockers: Vec::new(),
    }
}

pub fn blocker() -> Blocker {
    Blocker {
        code: "iommu_group_shared".to_owned(),
        subject: "0000:1b:00.0".to_owned(),
        message: "Separate the group.".to_owned(),
    }
}

/// A machine with `gpus` GPUs, the last `blocked` of which cannot be sold.
pub fn topology(gpus: usize, blocked: usize) -> Topology {
    let mut candidates: Vec<CandidateSlot> = (0..gpus).map(candidate).collect();
    for candidate in candidates.iter_mut().rev().take(blocked) {
        candidate.blockers.push(blocker());
    }
    Topology {
        hostname: "gpu".to_owned(),
        kernel: KernelFacts { release: "6.8".to_owned(), iommu_enabled: true, arguments: Vec::new() },
        cpus: 96,
        memory_mib: 1_000_000,
        numa_nodes: Vec::new(),
        gpus: Vec::new(),
        block_devices: Vec::new(),
        nics: Vec::new(),
        candidates,
        blockers: Vec::new(),
    }
}

pub fn report(passed: bool) -> HealthReport {
    HealthReport {
        profile: ProbeProfile::Onboarding,
        passed,
        checks: vec![ProbeCheck {
            name: "gpu_count".to_owned(),
            passed,
            detail: "as expected or not".to_owned(),
        }],
        gpus: Vec::<GpuReading>::new(),
    }
}
