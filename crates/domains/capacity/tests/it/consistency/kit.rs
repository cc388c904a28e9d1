//! A database with nodes, people and allocations, a clock that is moved by hand, and no agents.

use std::sync::Arc;

use capacity::{
    Capacity, Unbilled, model::allocation::Allocation, service::launch::Creator, workflow::reimage::Installs,
};
use chrono::{DateTime, TimeDelta, Utc};
use identity::api::Policies;
use kernel::{
    CorrelationId, ManualClock, Permission, Role,
    ids::{NodeId, OrgId, SlotId, UserId},
};
use node_proto::catalog::Topology;
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, WriteTx};
use testcapacity::{InstantReimager, TestCapacity, wanted};
use testfleet::topology_in_numa_nodes;
use testkit::TestDb;
use testworld::Tenants;
use uuid::Uuid;

pub struct Kit {
    pub capacity: Capacity,
    made: TestCapacity,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub org: OrgId,
    /// Who launches.
    pub creator: Creator,
    /// An operator.
    pub person: UserId,
}

pub const REGION: &str = "eu-north";

impl Kit {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let parts = testcapacity::Parts {
            clock: Some(clock.clone()),
            policies: Policies::new(test.db.clone()),
            money: Arc::new(Unbilled),
            reimager: Arc::new(InstantReimager(Installs::Every)),
        };
        let made = TestCapacity::start(&test.db, parts).await;
        made.fleet.region(REGION).await;
        let tenants = Tenants::new(&test.db);
        let tenant = tenants.tenant("first").await;
        let user = tenants.member_of(tenant, "creator").await;
        tenants.ssh_key(user, "creator").await;
        let creator = Creator::user(tenant.org, tenant.project, user);
        let person = test.db.ambient().id();
        Self { capacity: made.capacity.clone(), made, test, clock, org: tenant.org, creator, person }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, time: TimeDelta) {
        self.clock.advance(time);
    }

    /// Runs SQL as the superuser, with every trigger.
    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    /// Runs SQL as the superuser, past every trigger and reference.
    pub async fn tamper(&self, sql: &str) {
        self.test.tamper(sql).await;
    }

    pub async fn one<T: testkit::Scalar>(&self, sql: &str) -> T {
        self.test.one(sql).await
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    /// The right of an operator.
    pub fn permit(&self) -> Permit {
        let actor =
            Actor { kind: ActorKind::User, id: Some(self.person.uuid()), role: Role::PlatformOps.name() };
        let granted = Role::PlatformOps.permissions().authorize(Permission::CapacityManage).unwrap();
        Permit::granted(actor, Scope::Platform, self.origin(), granted)
    }

    pub async fn write(&self, action: &'static str) -> WriteTx {
        self.test.db.write(self.permit(), action).await.unwrap()
    }

    /// An active node with so many healthy GPUs to sell.
    pub async fn node(&self, hostname: &str, gpus: usize) -> NodeId {
        self.node_with(hostname, &topology_in_numa_nodes(gpus)).await
    }

    pub async fn node_with(&self, hostname: &str, topology: &Topology) -> NodeId {
        self.made.fleet.node_active(REGION, hostname, topology).await.id
    }

    /// The node's free slots, in the order of their places.
    pub async fn free(&self, node: NodeId) -> Vec<SlotId> {
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql = "SELECT id FROM node_resource_slots WHERE node_id = $1 AND state = 'available' ORDER BY slot_index";
        let ids: Vec<Uuid> = sqlx::query_scalar(sql).bind(node.uuid()).fetch_all(&mut admin).await.unwrap();
        ids.into_iter().map(SlotId::from).collect()
    }

    /// An allocation with its claims and a live workflow, as a launch leaves it.
    pub async fn requested(&self, sku: &str, gpus: Option<i32>) -> Allocation {
        self.made.launched(self.creator, wanted(sku, gpus)).await
    }

    /// The same, as the workflow leaves it when the machine is ready.
    pub async fn active(&self, sku: &str, gpus: Option<i32>) -> Allocation {
        self.made.active(self.creator, wanted(sku, gpus)).await
    }

    /// A live workflow about a subject.
    pub async fn run(&self, subject: &str) -> Uuid {
        let (id, now) = (self.test.db.ambient().uuid(), self.now().to_rfc3339());
        self.sql(&format!(
            "INSERT INTO saga_runs (id, name, spec_version, subject, input, wake_at, deadline, correlation_id,
                 created_at, updated_at)
             VALUES ('{id}', 'test', 1, '{subject}', '{{}}', '{now}', '{now}', '{id}', '{now}', '{now}')"
        ))
        .await;
        id
    }

    pub async fn run_ends(&self, subject: &str) {
        let now = self.now().to_rfc3339();
        self.sql(&format!(
            "UPDATE saga_runs SET state = 'succeeded', finished_at = '{now}'
             WHERE subject = '{subject}' AND finished_at IS NULL"
        ))
        .await;
    }

    /// The node tells what is in use on it.
    pub async fn reports(&self, node: NodeId, users: &[&str], machines: &[String]) {
        let mut contact = self.made.fleet.contact(node);
        contact.inventory = serde_json::json!({ "users": users, "machines": machines });
        self.made.fleet.contact_keep(contact).await;
    }
}
