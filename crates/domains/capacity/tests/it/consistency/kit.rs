//! A database with nodes, people and allocations, a clock that is moved by hand, and no agents.

use std::sync::Arc;

use async_trait::async_trait;
use capacity::{
    Capacity, Parts, Reimager, Unbilled,
    workflow::reimage::{Installs, Reimaging},
};
use chrono::{DateTime, TimeDelta, Utc};
use identity::api::Policies;
use kernel::{
    CorrelationId, Failure, ManualClock, Permission, Role,
    ids::{AllocationId, NodeId, OrgId, ProjectId, SlotId, UserId},
};
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, WriteTx};
use testfleet::{TestFleet, topology_in_numa_nodes};
use testkit::TestDb;
use testworld::{Tenant, Tenants};
use uuid::Uuid;

struct NoReimaging;

#[async_trait]
impl Reimager for NoReimaging {
    fn installs(&self) -> Installs {
        Installs::Every
    }
    async fn begin(&self, _: NodeId, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    async fn look(&self, _: NodeId, _: &str) -> Result<Reimaging, Failure> {
        Ok(Reimaging::Done)
    }
}

pub struct Kit {
    pub capacity: Capacity,
    fleet: TestFleet,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub org: OrgId,
    pub project: ProjectId,
    pub person: UserId,
}

pub const REGION: &str = "eu-north";

impl Kit {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let policies = Policies::new(test.db.clone());
        let parts = testfleet::Parts {
            clock: Some(clock.clone()),
            policies: Arc::new(policies.clone()),
            completions: Vec::new(),
            auto_approve_simulated: false,
        };
        let fleet = TestFleet::start(&test.db, parts).await;
        fleet.region(REGION).await;
        let (db, money, reimager) = (test.db.clone(), Arc::new(Unbilled), Arc::new(NoReimaging));
        let parts = Parts { db, fleet: fleet.fleet.clone(), policies, money, reimager };
        let Tenant { org, project, .. } = Tenants::new(&test.db).tenant("first").await;
        let person = test.db.ambient().id();
        Self { capacity: Capacity::new(parts), fleet, test, clock, org, project, person }
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
        self.test.sql(&format!("SET session_replication_role = replica; {sql}")).await;
    }

    pub async fn one<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut admin)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
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
    pub async fn node(&self, hostname: &str, gpus: i32) -> NodeId {
        let gpus = usize::try_from(gpus).unwrap();
        self.fleet.node_active(REGION, hostname, &topology_in_numa_nodes(gpus)).await.id
    }

    /// The node's free slots, in the order of their places.
    pub async fn free(&self, node: NodeId) -> Vec<SlotId> {
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql = "SELECT id FROM node_resource_slots WHERE node_id = $1 AND state = 'available' ORDER BY slot_index";
        let ids: Vec<Uuid> = sqlx::query_scalar(sql).bind(node.uuid()).fetch_all(&mut admin).await.unwrap();
        ids.into_iter().map(SlotId::from).collect()
    }

    /// An allocation with its claims, as a launch leaves it, with a live workflow.
    pub async fn requested(
        &self,
        node: NodeId,
        shape: &str,
        slots: &[SlotId],
        username: &str,
    ) -> AllocationId {
        let (id, now): (AllocationId, _) = (self.test.db.ambient().id(), self.now().to_rfc3339());
        let list = |of: String| vec![of; slots.len()].join(", ");
        let taken = slots.iter().map(|slot| format!("'{}'", slot.uuid())).collect::<Vec<_>>().join(", ");
        let (alloc, node) = (id.uuid(), node.uuid());
        let (allocs, nodes) = (list(format!("'{alloc}'")), list(format!("'{node}'")));
        let (org, project, person) = (self.org.uuid(), self.project.uuid(), self.person.uuid());
        let gpus = slots.len();
        let answer: String = self
            .one(&format!(
                "SELECT capacity_reserve('{now}', ROW('{org}', '{project}', 'user', '{person}', NULL, NULL, 'some-sku',
                     '{shape}', '{REGION}', {gpus}, '{{\"name\": \"p\", \"gpus\": {gpus}}}', 'gpu_hour', 450, 'USD',
                     'user-revoke')::launch_terms, ROW(1000, 1000, 1000)::reserve_limits, ROW(ARRAY['{alloc}'::uuid], ARRAY['a'], ARRAY['{node}'::uuid],
                     ARRAY['{username}'], ARRAY[20000], ARRAY['h'], ARRAY[22], ARRAY['x'::bytea])::allocation_batch,
                     ROW(ARRAY[{allocs}]::uuid[], ARRAY[{nodes}]::uuid[], ARRAY[{taken}]::uuid[])::claim_batch,
                     ROW('user', '{person}', gen_random_uuid())::write_origin)"
            ))
            .await;
        assert_eq!(answer, "ok");
        self.run(&id.to_string()).await;
        id
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

    /// The same, as the workflow leaves it when the machine is ready.
    pub async fn active(&self, node: NodeId, shape: &str, slots: &[SlotId], username: &str) -> AllocationId {
        let id = self.requested(node, shape, slots, username).await;
        let (alloc, now) = (id.uuid(), self.now().to_rfc3339());
        self.sql(&format!(
            "UPDATE allocations SET state = 'provisioning' WHERE id = '{alloc}';
             UPDATE allocations SET state = 'active', active_at = '{now}', meter_opened_at = '{now}',
                 state_changed_at = '{now}' WHERE id = '{alloc}';
             UPDATE node_resource_slots SET state = 'in_use', updated_at = '{now}'
                 WHERE id IN (SELECT slot_id FROM capacity_claims WHERE allocation_id = '{alloc}')"
        ))
        .await;
        self.run_ends(&id.to_string()).await;
        id
    }

    /// The node tells what is in use on it.
    pub async fn reports(&self, node: NodeId, users: &[&str], machines: &[String]) {
        let (node, now) = (node.uuid(), self.now().to_rfc3339());
        let inventory = serde_json::json!({ "users": users, "machines": machines });
        self.sql(&format!(
            "INSERT INTO node_contacts (node_id, first_seen_at, last_seen_at, agent_version, contract, inventory)
             VALUES ('{node}', '{now}', '{now}', '1.0.0', '1.1', '{inventory}')
             ON CONFLICT (node_id) DO UPDATE SET last_seen_at = excluded.last_seen_at, inventory = excluded.inventory"
        ))
        .await;
    }
}
