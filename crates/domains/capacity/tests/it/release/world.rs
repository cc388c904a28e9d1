//! A database with an organization, people and allocations in any state; money that counts in the database, so that
//! what was rolled back does not count.

use std::sync::Arc;

use capacity::{
    Capacity,
    model::allocation::Allocation,
    service::{launch::Creator, release::Asked},
    workflow::reimage::Installs,
};
use fleet::{Fleet, api::OrderedWork};
use identity::api::Policies;
use kernel::{
    Code, CorrelationId, Failure, Permission, Role,
    ids::{AllocationId, OrgId, ProjectId, UserId},
};
use node_proto::catalog::{VmRestart, VmRestartInput};
use pg::{Actor, ActorKind, Origin, Permit, Roles, Scope, WriteTx};
use testcapacity::{InstantReimager, TestCapacity, wanted};
use testfleet::topology;
use testkit::TestDb;
use testworld::{Tenant, Tenants};

use crate::recording_money::{self, RecordingMoney};

pub struct World {
    pub capacity: Capacity,
    pub fleet: Fleet,
    pub tenants: Tenants,
    pub test: TestDb,
    pub org: OrgId,
    pub project: ProjectId,
    /// Who makes allocations.
    pub creator: UserId,
    pub other: UserId,
    pub operator: UserId,
    pub made: TestCapacity,
}

impl World {
    pub async fn new() -> Arc<Self> {
        let test = TestDb::create().await;
        let parts = testcapacity::Parts {
            clock: None,
            policies: Policies::new(test.db.clone()),
            money: Arc::new(RecordingMoney::default()),
            reimager: Arc::new(InstantReimager(Installs::Every)),
        };
        let made = TestCapacity::start(&test.db, parts).await;
        made.fleet.region("eu").await;
        let (capacity, fleet) = (made.capacity.clone(), made.fleet.fleet.clone());
        recording_money::table_create(&test).await;
        let tenants = Tenants::new(&test.db);
        let tenant = tenants.tenant("first").await;
        let (creator, other) =
            (tenants.member_of(tenant, "creator").await, tenants.member_of(tenant, "other").await);
        let operator = tenants.user("operator").await;
        let Tenant { org, project, .. } = tenant;
        Arc::new(Self { capacity, fleet, tenants, test, org, project, creator, other, operator, made })
    }

    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.test.one(sql).await
    }

    pub async fn stores_key(&self, user: UserId, key: &str) {
        self.tenants.ssh_key(user, key).await;
    }

    fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    /// Somebody acts in the project.
    pub async fn as_user(&self, user: UserId) -> WriteTx {
        self.as_user_in(user, Scope::Project(self.org, self.project)).await
    }

    pub async fn as_user_in(&self, user: UserId, scope: Scope) -> WriteTx {
        let actor = Actor { kind: ActorKind::User, id: Some(user.uuid()), role: Role::ProjectMember.name() };
        let granted = Role::ProjectMember.permissions().authorize(Permission::AllocationOperate).unwrap();
        let permit = Permit::granted(actor, scope, self.origin(), granted);
        self.test.db.write(permit, "allocation.test").await.unwrap()
    }

    pub async fn as_operator(&self) -> WriteTx {
        let actor =
            Actor { kind: ActorKind::User, id: Some(self.operator.uuid()), role: Role::PlatformOps.name() };
        let granted = Role::PlatformOps.permissions().authorize(Permission::CapacityManage).unwrap();
        let permit = Permit::granted(actor, Scope::Platform, self.origin(), granted);
        self.test.db.write(permit, "allocation.test").await.unwrap()
    }

    pub async fn as_system(&self) -> WriteTx {
        self.test.db.write(Permit::system("test", self.origin()), "allocation.test").await.unwrap()
    }

    pub fn asked(&self, allocation: AllocationId) -> Asked {
        Asked { project: self.project, allocation, any: false, if_match: None }
    }

    /// As many allocations in a state as wanted, each with a live run when it is on its way. Written past the services:
    /// what is tested is what each state allows, also on machines that never were, with runs that no worker takes.
    pub async fn allocations(&self, state: &str, shape: &str, count: usize) -> Vec<AllocationId> {
        let ids: Vec<AllocationId> = (0..count).map(|_| self.test.db.ambient().id()).collect();
        let list = ids.iter().map(|id| format!("'{}'::uuid", id.uuid())).collect::<Vec<_>>().join(", ");
        let (meter, cleaned) = match state {
            "active" => ("now()", "NULL"),
            "releasing" | "release_failed" | "released" => ("now()", "now()"),
            _ => ("NULL", "NULL"),
        };
        let finished = if matches!(state, "released" | "failed") { "now()" } else { "NULL" };
        let (org, project, creator) = (self.org.uuid(), self.project.uuid(), self.creator.uuid());
        self.sql(&format!(
            "INSERT INTO allocations (id, org_id, project_id, name, creator_kind, creator_id, sku, shape, region, gpus,
                 profile, price_unit, unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid,
                 ssh_host, ssh_port, work_order, state, state_changed_at, meter_opened_at, meter_closed_at,
                 finished_at, created_at, updated_at)
             SELECT id, '{org}', '{project}', 'a', 'user', '{creator}', 'sku', '{shape}', 'eu', 1,
                 '{{\"name\": \"p\", \"gpus\": 1}}', 'gpu_hour', 450, 'usd', 'user-revoke', gen_random_uuid(), '{{}}',
                 'u', 20001, 'host', 22, 'x', '{state}', now(), {meter}, {cleaned}, {finished}, now(), now()
             FROM unnest(ARRAY[{list}]) AS id"
        ))
        .await;
        self.seal(&ids).await;
        if let Some(saga) = match state {
            "requested" | "provisioning" => Some("provision_slice"),
            "releasing" => Some("release_slice"),
            _ => None,
        } {
            self.sql(&format!(
                "INSERT INTO saga_runs (id, name, spec_version, subject, org_id, input, wake_at, deadline,
                     correlation_id, created_at, updated_at)
                 SELECT gen_random_uuid(), '{saga}', 1, 'alloc_' || replace(id::text, '-', ''), '{org}', '{{}}', now(),
                     now() + interval '1 day', gen_random_uuid(), now(), now()
                 FROM unnest(ARRAY[{list}]) AS id"
            ))
            .await;
        }
        ids
    }

    /// A slice of two GPUs that was requested, on a node of its own.
    pub async fn launched(&self) -> Allocation {
        let name = self.test.db.ambient().uuid().simple().to_string();
        self.stores_key(self.creator, &name).await;
        self.made.fleet.node_active("eu", &format!("gpu-{name}"), &topology(2, 0)).await;
        let creator = Creator::user(self.org, self.project, self.creator);
        self.made.launched(creator, wanted("h200-sxm-slice", Some(2))).await
    }

    /// What their launches authorised.
    async fn seal(&self, ids: &[AllocationId]) {
        let tx = self.as_user(self.creator).await;
        let node = self.test.db.ambient().id();
        let orders: Vec<Vec<u8>> = ids
            .iter()
            .map(|id| {
                let work =
                    OrderedWork::from_input::<VmRestart>(&VmRestartInput { owner: id.to_string() }).unwrap();
                self.fleet.order_seal(&tx, &id.to_string(), node, vec![work]).unwrap()
            })
            .collect();
        tx.roll_back().await;
        let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
        let mut admin = self.test.conn(Roles::Admin).await;
        let sql = "UPDATE allocations a SET work_order = o.sealed, node_id = $3
                   FROM unnest($1::uuid[], $2::bytea[]) AS o (id, sealed) WHERE a.id = o.id";
        let sealed = sqlx::query(sql).bind(ids).bind(orders).bind(node.uuid()).execute(&mut admin).await;
        sealed.unwrap();
    }

    pub async fn allocation(&self, state: &str) -> AllocationId {
        self.allocations(state, "gpu_slice", 1).await[0]
    }

    pub async fn state(&self, id: AllocationId) -> String {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar("SELECT state FROM allocations WHERE id = $1")
            .bind(id.uuid())
            .fetch_one(&mut admin)
            .await
            .unwrap()
    }

    pub async fn events(&self, id: AllocationId, name: &str) -> i64 {
        let id = id.uuid();
        self.count(&format!(
            "SELECT count(*) FROM allocation_events WHERE allocation_id = '{id}' AND name = '{name}'"
        ))
        .await
    }

    pub async fn meters(&self, id: AllocationId, what: &str) -> i64 {
        let id = id.uuid();
        self.count(&format!("SELECT count(*) FROM test_meters WHERE allocation = '{id}' AND what = '{what}'"))
            .await
    }

    pub async fn live_runs(&self, subject: &str) -> i64 {
        self.count(&format!(
            "SELECT count(*) FROM saga_runs WHERE subject = '{subject}' AND state IN ('running', 'undoing')"
        ))
        .await
    }
}

/// Commits what succeeded.
pub async fn ended<T>(tx: WriteTx, result: Result<T, Failure>) -> Result<T, Failure> {
    match result {
        Ok(value) => {
            tx.commit(None).await.unwrap();
            Ok(value)
        }
        Err(failure) => {
            tx.roll_back().await;
            Err(failure)
        }
    }
}

pub fn code<T>(result: Result<T, Failure>) -> Option<Code> {
    match result {
        Ok(_) => None,
        Err(Failure::Problem(problem)) => Some(problem.code),
        Err(internal) => panic!("{internal:?}"),
    }
}
