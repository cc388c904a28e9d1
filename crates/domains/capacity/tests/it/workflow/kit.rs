//! An installation with a project and its member; machines on demand; money that counts in the database.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use capacity::{
    Capacity, Money, Parts,
    service::{
        launch::{Creator, Wanted, launch},
        money::Meter,
        release::Asked,
    },
    workflow::{completion, reimage::SimulatedReimager, sagas},
};
use chrono::{DateTime, TimeDelta, Utc};
use fleet::{
    Fleet, Settings,
    authority::{Signing, Trust, TrustSettings},
};
use identity::api::Policies;
use kernel::{
    Ambient, CorrelationId, Entropy, Failure, ManualClock, Permission, Role, Secret,
    ids::{AllocationId, NodeId, OrgId, ProjectId, SagaRunId, UserId},
};
use node_proto::contract::Ending;
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, Wake, WriteTx};
use saga::{Engine, Saga};
use sqlx::PgConnection;
use testkit::TestDb;
use trust::signer::FileCustody;
use uuid::Uuid;

struct Random(Ambient);

impl Entropy for Random {
    fn fill(&self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

/// Writes what it is told into a table, in the transaction in which it is told.
struct Counting;

impl Counting {
    async fn note(tx: &mut WriteTx, allocation: AllocationId, what: &str) -> Result<(), Failure> {
        let note = sqlx::query("INSERT INTO test_meters VALUES ($1, $2)").bind(allocation.uuid()).bind(what);
        note.execute(tx.conn()).await?;
        Ok(())
    }
}

#[async_trait]
impl Money for Counting {
    async fn check_funds(&self, _: &mut WriteTx, _: &[Meter]) -> Result<(), Failure> {
        Ok(())
    }
    async fn hold(&self, _: &mut WriteTx, _: &[Meter]) -> Result<(), Failure> {
        Ok(())
    }
    async fn meter_open(&self, tx: &mut WriteTx, meter: &Meter, _: DateTime<Utc>) -> Result<(), Failure> {
        assert_eq!((meter.units, meter.unit_price_minor), (GPUS, 450), "the pinned price");
        Self::note(tx, meter.allocation, "open").await
    }
    async fn meter_close(&self, tx: &mut WriteTx, id: AllocationId, _: DateTime<Utc>) -> Result<(), Failure> {
        Self::note(tx, id, "close").await
    }
    async fn launch_failed(&self, tx: &mut WriteTx, id: AllocationId) -> Result<(), Failure> {
        Self::note(tx, id, "launch_failed").await
    }
}

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
    _home: tempfile::TempDir,
}

impl Drop for Kit {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Kit {
    pub async fn new() -> Arc<Self> {
        Self::with(|_, _| Arc::new(Counting)).await
    }

    pub async fn with(money: impl FnOnce(&pg::Db, &Policies) -> Arc<dyn Money>) -> Arc<Self> {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = Ambient::new(clock.clone(), Arc::new(Random(Ambient::system())));
        let test = TestDb::create_with(ambient.clone()).await;
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
            auto_approve_simulated: false,
        };
        let (org, project, creator, other) = (ambient.id(), ambient.id(), ambient.id(), ambient.id());
        for statements in world_sql(org, project, [creator, other]) {
            test.sql(&statements).await;
        }
        test.set_global_policy("allocation.max_concurrent_per_user", "1000000").await;
        let policies = Policies::new(test.db.clone());
        let fleet =
            Fleet::new(test.db.clone(), trust, Arc::new(policies.clone()), settings, vec![completion()]);
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
        Arc::new(Self {
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
            _home: home,
        })
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

    /// A machine with as many GPUs as are launched.
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
        self.machine().await;
        let mut tx = self.as_creator().await;
        let creator = Creator { org: self.org, project: self.project, user: self.creator };
        let wanted =
            Wanted { sku: sku.to_owned(), gpus: None, profile: None, region: None, name: None, image: None };
        let made = launch(&self.capacity, &mut tx, creator, wanted).await.unwrap();
        tx.commit(None).await.unwrap();
        made.id
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

fn world_sql(org: OrgId, project: ProjectId, people: [UserId; 2]) -> Vec<String> {
    let (org, project) = (org.uuid(), project.uuid());
    let mut all = vec![format!(
        "CREATE TABLE test_meters (allocation uuid, what text);
         CREATE INDEX ON test_meters (allocation);
         GRANT SELECT, INSERT ON test_meters TO gpuaas_app, gpuaas_system;
         INSERT INTO regions VALUES ('here', 'Here', 1, now(), now());
         INSERT INTO organizations (id, kind, slug, name, created_at, updated_at)
             VALUES ('{org}', 'enterprise', 'first', 'First', now(), now());
         INSERT INTO projects (id, org_id, slug, name, created_at, updated_at)
             VALUES ('{project}', '{org}', 'default', 'Default', now(), now());
         INSERT INTO sku_catalog (sku, vendor, display_name, resource_class, capacity_shape, slot_kind, slot_model,
             gpus_total, allowed_gpu_counts, created_at, updated_at)
         VALUES ('{MACHINE}', 'test', 'Machine', 'gpu_baremetal', 'baremetal', 'gpu', 'T1', {GPUS}, ARRAY[{GPUS}], now(), now()),
             ('{SLICE}', 'test', 'Slice', 'gpu_slice', 'gpu_slice', 'gpu', 'T1', {GPUS}, ARRAY[{GPUS}], now(), now());
         INSERT INTO resource_profiles (sku, name, gpus, vcpus, memory_mib, is_default, created_at, updated_at)
         VALUES ('{SLICE}', 'all', {GPUS}, 8, 65536, true, now(), now());
         INSERT INTO sku_prices (sku, valid_from, unit, unit_price_minor, currency, created_at)
         VALUES ('{MACHINE}', '2020-01-01T00:00:00Z', 'gpu_hour', 450, 'USD', now()),
             ('{SLICE}', '2020-01-01T00:00:00Z', 'gpu_hour', 450, 'USD', now())"
    )];
    for (n, user) in people.into_iter().enumerate() {
        let user = user.uuid();
        all.push(format!(
            "INSERT INTO users (id, issuer, subject, name, created_at, updated_at)
                 VALUES ('{user}', 'test', 'user-{n}', 'user-{n}', now(), now());
             INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at)
                 VALUES ('{org}', '{user}', 'member', now(), now());
             INSERT INTO project_memberships (org_id, project_id, user_id, role, created_at, updated_at)
                 VALUES ('{org}', '{project}', '{user}', 'member', now(), now());
             INSERT INTO user_ssh_keys (id, user_id, name, key_type, fingerprint, public_key, created_at)
                 VALUES (gen_random_uuid(), '{user}', 'key', 'ssh-ed25519', 'key-{n}', 'ssh-ed25519 AAA{n}', now())"
        ));
    }
    all
}
