//! An installation with a project and its member; machines on demand; money that counts in the database.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use capacity::{
    Capacity, Money, Parts,
    model::{
        allocation::Shape,
        sku::{Currency, PriceUnit, Profile, SkuCode, SlotModel},
    },
    service::{
        catalog::managing::{PriceRequest, SkuRequest, sku_create, sku_profile_create},
        launch::{Creator, Wanted, launch},
        release::Asked,
    },
    workflow::{completion, reimage::SimulatedReimager, sagas},
};
use chrono::TimeDelta;
use fleet::Fleet;
use identity::api::Policies;
use kernel::{
    CorrelationId, Failure, ManualClock, Permission, Role,
    ids::{AllocationId, NodeId, OrgId, ProjectId, SagaRunId, UserId},
    principal::PrincipalId,
    text::{Name, Slug},
};
use node_proto::contract::Ending;
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, Wake, WriteTx};
use saga::{Engine, Saga};
use sqlx::PgConnection;
use testfleet::TestFleet;
use testkit::TestDb;
use testworld::{Tenant, Tenants};
use uuid::Uuid;

use crate::recording_money::{self, RecordingMoney};

/// What is launched here, always.
pub const GPUS: i32 = 2;
pub const MACHINE: &str = "test-machine";
pub const SLICE: &str = "test-slice";
pub const TASK_SECONDS: i64 = 300;

pub struct Kit {
    pub capacity: Capacity,
    pub fleet: Fleet,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub reimager: SimulatedReimager,
    pub wake: Wake,
    pub org: OrgId,
    pub project: ProjectId,
    pub creator: UserId,
    pub other: UserId,
    /// How the node ends the next tasks of a kind, when not well.
    pub script: Mutex<BTreeMap<&'static str, Vec<Ending>>>,
    /// The node is away.
    pub silent: Mutex<bool>,
    pub admin: tokio::sync::Mutex<PgConnection>,
    listening: tokio::task::JoinHandle<()>,
    pub tenants: Tenants,
    pub made: TestFleet,
}

impl Drop for Kit {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Kit {
    pub async fn new() -> Arc<Self> {
        Self::with(|_, _| Arc::new(RecordingMoney { pinned: Some((GPUS, 450)) })).await
    }

    pub async fn with(money: impl FnOnce(&pg::Db, &Policies) -> Arc<dyn Money>) -> Arc<Self> {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient.clone()).await;
        recording_money::table_create(&test).await;
        let tenants = Tenants::new(&test.db);
        let tenant = tenants.tenant("first").await;
        let (creator, other) =
            (tenants.member_of(tenant, "creator").await, tenants.member_of(tenant, "other").await);
        tenants.ssh_key(creator, "creator").await;
        tenants.ssh_key(other, "the-other").await;
        let Tenant { org, project, .. } = tenant;
        test.set_global_policy("allocation.max_concurrent_per_user", "1000000").await;
        let policies = Policies::new(test.db.clone());
        let parts = testfleet::Parts {
            clock: Some(clock.clone()),
            policies: Arc::new(policies.clone()),
            completions: vec![completion()],
            auto_approve_simulated: false,
        };
        let made = TestFleet::start(&test.db, parts).await;
        made.region("here").await;
        let fleet = made.fleet.clone();
        let reimager = SimulatedReimager::new(ambient, TimeDelta::zero());
        let capacity = Capacity::new(Parts {
            db: test.db.clone(),
            fleet: fleet.clone(),
            money: money(&test.db, &policies),
            policies,
            reimager: Arc::new(reimager.clone()),
        });
        let (wake, listening) = test.db.listen();
        let admin = tokio::sync::Mutex::new(test.conn(Roles::Admin).await);
        let kit = Self {
            capacity,
            fleet,
            test,
            clock,
            reimager,
            wake,
            org,
            project,
            creator,
            other,
            script: Mutex::default(),
            silent: Mutex::default(),
            admin,
            listening,
            tenants,
            made,
        };
        kit.product(MACHINE, Shape::Baremetal).await;
        kit.product(SLICE, Shape::GpuSlice).await;
        Arc::new(kit)
    }

    /// What is sold here: as many GPUs as a machine has, at 4.50 the hour each.
    async fn product(&self, sku: &str, shape: Shape) {
        let mut tx = self.as_operator().await;
        let sku = SkuCode::parse(sku).unwrap();
        let price = PriceRequest {
            unit: PriceUnit::GpuHour,
            unit_price_minor: 450,
            currency: Currency::parse("USD").unwrap(),
            valid_from: None,
        };
        let request = SkuRequest {
            sku: sku.clone(),
            vendor: Slug::parse("test").unwrap(),
            display_name: Name::parse(sku.as_str()).unwrap(),
            shape,
            slot_model: SlotModel::parse("T1").unwrap(),
            gpus_total: GPUS,
            allowed_gpu_counts: vec![GPUS],
            active: true,
            price,
        };
        sku_create(&mut tx, request).await.unwrap();
        if shape == Shape::GpuSlice {
            let name = "all".to_owned();
            let profile = Profile { name, gpus: GPUS, vcpus: 8, memory_mib: 65536, is_default: true };
            sku_profile_create(&mut tx, &sku, profile).await.unwrap();
        }
        tx.commit(None).await.unwrap();
    }

    pub fn saga(&self, name: &str) -> Arc<dyn Saga> {
        sagas(&self.capacity).into_iter().find(|saga| saga.spec().name == name).unwrap()
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    pub async fn as_creator(&self) -> WriteTx {
        let role = Role::ProjectMember;
        let actor = Actor { kind: ActorKind::User, id: Some(self.creator.uuid()), role: role.name() };
        let granted = role.permissions().authorize(Permission::AllocationOperate).unwrap();
        let scope = Scope::Project(self.org, self.project);
        self.test
            .db
            .write(Permit::granted(actor, scope, self.origin(), granted), "allocation.test")
            .await
            .unwrap()
    }

    pub async fn as_operator(&self) -> WriteTx {
        let role = Role::PlatformOps;
        let actor = Actor { kind: ActorKind::User, id: Some(self.other.uuid()), role: role.name() };
        let granted = role.permissions().authorize(Permission::CapacityManage).unwrap();
        let permit = Permit::granted(actor, Scope::Platform, self.origin(), granted);
        self.test.db.write(permit, "allocation.test").await.unwrap()
    }

    pub fn asked(&self, allocation: AllocationId) -> Asked {
        Asked { project: self.project, allocation, any: false, if_match: None }
    }

    /// A machine with as many GPUs as are launched. Written past fleet's services, which make no active node without a
    /// certificate: one that has none needs no new key after a tenant, which the node of these tests would not get.
    pub async fn machine(&self) -> NodeId {
        self.clock.advance(TimeDelta::milliseconds(1));
        let id: NodeId = self.test.db.ambient().id();
        let node = id.uuid();
        self.sql(&format!(
            "INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                 VALUES ('{node}', 'host-{node}', 'here', 'active', now(), now(), now());
             INSERT INTO node_resource_slots (id, node_id, slot_index, kind, state, pci_address, model, nvme_device,
                 numa_node, fabric_mode, fabric_vf, health, created_at, updated_at)
             SELECT gen_random_uuid(), '{node}', n, 'gpu', 'available', '0000:0' || n || ':00.0', 'T1', 'nvme-' || n, 0, 'vf',
                 'vf' || n, 'healthy', now(), now() FROM generate_series(1, {GPUS}) n"
        ))
        .await;
        id
    }

    /// A launch, on a machine of its own.
    pub async fn launch(&self, sku: &str) -> AllocationId {
        self.launch_by(PrincipalId::User(self.creator), sku).await.unwrap()
    }

    pub async fn launch_by(&self, principal: PrincipalId, sku: &str) -> Result<AllocationId, Failure> {
        self.machine().await;
        let mut tx = self.as_creator().await;
        let creator = Creator { org: self.org, project: self.project, principal };
        let wanted =
            Wanted { sku: sku.to_owned(), gpus: None, profile: None, region: None, name: None, image: None };
        match launch(&self.capacity, &mut tx, creator, wanted).await {
            Ok(launched) => {
                tx.commit(None).await.unwrap();
                Ok(launched.made.id)
            }
            Err(failure) => {
                tx.roll_back().await;
                Err(failure)
            }
        }
    }

    /// One that has become active.
    pub async fn active(&self, sku: &str) -> AllocationId {
        let id = self.launch(sku).await;
        assert_eq!(self.drive(&id.to_string()).await, "succeeded");
        id
    }

    pub async fn run_of(&self, subject: &str) -> SagaRunId {
        let run = format!("SELECT id FROM saga_runs WHERE subject = '{subject}' ORDER BY id DESC LIMIT 1");
        SagaRunId::from(self.one::<Uuid>(&run).await)
    }

    /// Works the newest run about a subject to its end, and answers how it ended.
    pub async fn drive(&self, subject: &str) -> String {
        let end = self.drive_for(subject, 200).await;
        end.unwrap_or_else(|| panic!("the run about {subject} did not come to an end"))
    }

    /// The same within so many turns; nothing when it did not come to an end.
    pub async fn drive_for(&self, subject: &str, turns: usize) -> Option<String> {
        let run = self.run_of(subject).await.uuid();
        let name: String = self.one(&format!("SELECT name FROM saga_runs WHERE id = '{run}'")).await;
        let versions = sagas(&self.capacity).into_iter().filter(|saga| saga.spec().name == name).collect();
        let engine = Engine::new(self.test.db.clone(), self.wake.clone(), versions);
        for _ in 0..turns {
            self.clock.advance(TimeDelta::milliseconds(1));
            let look = format!(
                "SELECT coalesce(CASE WHEN signal IS NULL AND state IN ('running', 'undoing') THEN wake_key END, state)
                 FROM saga_runs WHERE id = '{run}'"
            );
            let look: String = self.one(&look).await;
            match look.as_str() {
                "succeeded" | "undone" | "stuck" => return Some(look),
                "running" | "undoing" => {}
                key => self.answer(key).await,
            }
            self.sql(&format!(
                "UPDATE saga_runs SET wake_at = least(wake_at, '{}') WHERE id = '{run}'
                     AND (wake_key IS NULL OR signal IS NOT NULL)",
                self.test.db.ambient().now().to_rfc3339()
            ))
            .await;
            engine.run_once().await.unwrap();
        }
        None
    }

    pub async fn sql(&self, statements: &str) {
        let mut admin = self.admin.lock().await;
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(&mut *admin).await;
        done.unwrap_or_else(|error| panic!("{statements}: {error}"));
    }

    pub async fn one<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let mut admin = self.admin.lock().await;
        let found = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut *admin).await;
        found.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub async fn state(&self, id: AllocationId) -> String {
        self.one(&format!("SELECT state FROM allocations WHERE id = '{}'", id.uuid())).await
    }

    pub async fn reason(&self, id: AllocationId) -> String {
        self.one(&format!("SELECT state_reason FROM allocations WHERE id = '{}'", id.uuid())).await
    }

    /// The states of its slots, each once.
    pub async fn slots(&self, id: AllocationId) -> String {
        self.one(&format!(
            "SELECT coalesce(string_agg(DISTINCT s.state, ' '), '') FROM node_resource_slots s
             JOIN allocations a ON s.id = ANY (a.slot_ids) WHERE a.id = '{}'",
            id.uuid()
        ))
        .await
    }

    pub async fn claims(&self, id: AllocationId) -> i64 {
        let id = id.uuid();
        self.one(&format!(
            "SELECT count(*) FROM capacity_claims WHERE allocation_id = '{id}' AND freed_at IS NULL"
        ))
        .await
    }

    pub async fn meters(&self, id: AllocationId, what: &str) -> i64 {
        let id = id.uuid();
        self.one(&format!("SELECT count(*) FROM test_meters WHERE allocation = '{id}' AND what = '{what}'"))
            .await
    }

    /// How many tasks of a kind were ever queued about it.
    pub async fn tasks(&self, id: AllocationId, task_type: &str) -> i64 {
        let id = id.uuid();
        self.one(&format!(
            "SELECT count(*) FROM node_tasks t JOIN saga_runs r
                 ON split_part(t.waiting_key, '/', 1) = 'run_' || replace(r.id::text, '-', '')
             WHERE t.task_type = '{task_type}' AND r.input->>'allocation_id' = 'alloc_' || replace('{id}', '-', '')"
        ))
        .await
    }
}
