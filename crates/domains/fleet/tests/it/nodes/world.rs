//! An installation with a fleet: a database, a clock that is moved by hand, an operator.

use std::{ops::Deref, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use fleet::{
    model::{
        node::{Node, NodeEvent},
        slot::Slot,
    },
    service::{nodes::transition, slots::slot_list},
};
use kernel::{Ambient, Code, Failure, ManualClock, PageQuery, ids::NodeId, text::Reason};
use pg::Roles;
use serde_json::Value;
use testfleet::{Parts, TestFleet};
pub use testfleet::{candidate, csr, pci, report, succeeded, topology};
use testkit::TestDb;

pub struct World {
    made: TestFleet,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
}

impl Deref for World {
    type Target = TestFleet;

    fn deref(&self) -> &TestFleet {
        &self.made
    }
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
        world.region(REGION).await;
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
        (clock.clone(), clock.ambient())
    }

    async fn around(test: TestDb, clock: Arc<ManualClock>, auto_approve_simulated: bool) -> Self {
        let parts = Parts {
            clock: Some(clock.clone()),
            policies: Arc::new(identity::api::Policies::new(test.db.clone())),
            completions: Vec::new(),
            auto_approve_simulated,
        };
        Self { made: TestFleet::start(&test.db, parts).await, test, clock }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, time: TimeDelta) {
        self.clock.advance(time);
    }

    /// A node that has not enrolled, with its bootstrap token.
    pub async fn node(&self, hostname: &str) -> (Node, String) {
        self.node_like(hostname, false).await
    }

    pub async fn node_like(&self, hostname: &str, simulated: bool) -> (Node, String) {
        self.node_created(REGION, hostname, simulated).await
    }

    pub async fn enrolled(&self, hostname: &str) -> Node {
        let (node, token) = self.node(hostname).await;
        self.enroll(&node, &token).await.unwrap();
        self.detail(node.id).await.node
    }

    /// A node that serves: enrolled, discovered, approved and proven.
    pub async fn active(&self, hostname: &str, gpus: usize) -> Node {
        self.node_active(REGION, hostname, &topology(gpus, 0)).await
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
    pub async fn report_accept(&self, node: NodeId) {
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
        self.test.one(sql).await
    }

    /// Runs SQL as the superuser, with every trigger.
    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    /// Runs SQL as the superuser, past every trigger.
    pub async fn tamper(&self, sql: &str) {
        self.test.tamper(sql).await;
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
