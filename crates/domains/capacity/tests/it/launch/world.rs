//! Two organizations, people with keys, nodes, and the endpoints as a client meets them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{Router, body::Body};
use capacity::{
    Capacity, Money, Parts, Reimager, Unbilled,
    workflow::reimage::{Installs, Reimaging},
};
use endpoint::{
    Authenticator, Caller, ClientInfo, Directory, Grants, Limits, OrgFacts, OrgGrant, ProjectFacts, Services,
};
use fleet::{
    Fleet, Settings,
    authority::{Signing, Trust, TrustSettings},
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use identity::api::Policies;
use kernel::{
    CorrelationId, Failure, Role, Secret,
    ids::{InvitationId, NodeId, OrgId, ProjectId, SessionId, SlotId, UserId},
};
use pg::{Origin, Permit, Roles, WriteTx};
use serde_json::{Value, json};
use testkit::TestDb;
use tower::ServiceExt as _;
use trust::signer::FileCustody;
use uuid::Uuid;

struct NoReimaging;

#[async_trait]
impl Reimager for NoReimaging {
    fn installs(&self) -> Installs {
        Installs::Simulated
    }
    async fn begin(&self, _: NodeId, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn look(&self, _: NodeId, _: &str) -> Result<Reimaging, Failure> {
        Ok(Reimaging::Done)
    }
}

/// Tokens are ids of people, and what they may do is known here.
#[derive(Clone, Default)]
struct People(Arc<Mutex<HashMap<UserId, Arc<Grants>>>>);

#[async_trait]
impl Authenticator for People {
    async fn authenticate(&self, bearer: &str, _: &ClientInfo) -> Result<Caller, Failure> {
        let id: UserId = bearer.parse()?;
        let grants = self.0.lock().unwrap().get(&id).cloned().unwrap_or_default();
        Ok(Caller::User { id, session: SessionId::from(Uuid::from_u128(1)), grants })
    }
}

#[derive(Clone, Default)]
struct Places(Arc<Mutex<HashMap<ProjectId, OrgId>>>);

#[async_trait]
impl Directory for Places {
    async fn org(&self, _: OrgId) -> Result<Option<OrgFacts>, Failure> {
        Ok(Some(OrgFacts { suspended: false }))
    }
    async fn project(&self, id: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        let org = self.0.lock().unwrap().get(&id).copied();
        Ok(org.map(|org| ProjectFacts { org, suspended: false }))
    }
    async fn invitation(&self, _: InvitationId) -> Result<Option<OrgId>, Failure> {
        Ok(None)
    }
}

/// An organization with one project and a member of it who has a key.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    pub org: OrgId,
    pub project: ProjectId,
    pub member: UserId,
}

pub struct World {
    pub capacity: Capacity,
    pub test: TestDb,
    pub tenant: Tenant,
    /// Everything that was answered, to look for what must not be in it.
    pub answers: Mutex<String>,
    router: Router,
    people: People,
    places: Places,
    listening: tokio::task::JoinHandle<()>,
    _home: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// An answer of the service.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    pub fn id(&self) -> String {
        assert!(self.status.is_success(), "{self:?}");
        self.body["id"].as_str().unwrap().to_owned()
    }
}

impl World {
    pub async fn new() -> Arc<Self> {
        Self::with(|_, _| Arc::new(Unbilled)).await
    }

    pub async fn with(money: impl FnOnce(&pg::Db, &Policies) -> Arc<dyn Money>) -> Arc<Self> {
        let test = TestDb::create().await;
        test.lift_rate_limits().await;
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
        let policies = Policies::new(test.db.clone());
        let fleet = Fleet::new(test.db.clone(), trust, Arc::new(policies.clone()), settings, Vec::new());
        let (wake, listening) = test.db.listen();
        let capacity = Capacity::new(Parts {
            db: test.db.clone(),
            fleet,
            policies: policies.clone(),
            money: money(&test.db, &policies),
            reimager: Arc::new(NoReimaging),
        })
        .listening(wake);
        let (people, places) = (People::default(), Places::default());
        let services = Services {
            db: test.db.clone(),
            authenticator: Arc::new(people.clone()),
            directory: Arc::new(places.clone()),
            policies: Arc::new(policies),
            answers: Arc::new(
                trust::Sealer::for_purpose(&Secret::new([7; 32]), b"stored responses").unwrap(),
            ),
        };
        let auth = identity::AuthInfo {
            issuer: "https://gpuaas.test".to_owned(),
            cli_client_id: "cli".to_owned(),
            audience: "gpuaas".to_owned(),
        };
        let links = identity::api::InvitationLinks::new(&Secret::new([7; 32]), "https://gpuaas.test", false);
        let mut endpoints = capacity::endpoints(&capacity);
        endpoints.extend(identity::endpoints(identity::Identity::new(test.db.clone(), auth, links)));
        let router = endpoint::router(services, Limits::default(), endpoints);
        let ambient = test.db.ambient();
        let tenant = Tenant { org: ambient.id(), project: ambient.id(), member: ambient.id() };
        let answers = Mutex::default();
        let world = Self { capacity, test, tenant, answers, router, people, places, listening, _home: home };
        world.tenant_made(tenant, "first").await;
        Arc::new(world)
    }

    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut admin)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub async fn another_tenant(&self, slug: &str) -> Tenant {
        let ambient = self.test.db.ambient();
        let tenant = Tenant { org: ambient.id(), project: ambient.id(), member: ambient.id() };
        self.tenant_made(tenant, slug).await;
        tenant
    }

    async fn tenant_made(&self, tenant: Tenant, slug: &str) {
        let (org, project) = (tenant.org.uuid(), tenant.project.uuid());
        self.sql(&format!(
            "INSERT INTO organizations (id, kind, slug, name, created_at, updated_at)
                 VALUES ('{org}', 'enterprise', '{slug}', '{slug}', now(), now());
             INSERT INTO projects (id, org_id, slug, name, created_at, updated_at)
                 VALUES ('{project}', '{org}', 'default', 'Default', now(), now())"
        ))
        .await;
        self.places.0.lock().unwrap().insert(tenant.project, tenant.org);
        self.joins(tenant, tenant.member).await;
        self.stores_key(tenant.member).await;
    }

    /// Somebody becomes a member of the organization and of the project.
    pub async fn joins(&self, tenant: Tenant, user: UserId) {
        let (org, project, id) = (tenant.org.uuid(), tenant.project.uuid(), user.uuid());
        self.sql(&format!(
            "INSERT INTO users (id, issuer, subject, name, created_at, updated_at)
                 VALUES ('{id}', 'test', '{id}', 'Somebody', now(), now());
             INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at)
                 VALUES ('{org}', '{id}', 'member', now(), now());
             INSERT INTO project_memberships (org_id, project_id, user_id, role, created_at, updated_at)
                 VALUES ('{org}', '{project}', '{id}', 'member', now(), now())"
        ))
        .await;
        let mut grants = Grants::default();
        grants.orgs.insert(tenant.org, OrgGrant { role: Role::OrgMember, suspended: false });
        grants.projects.insert(tenant.project, Role::ProjectMember);
        self.people.0.lock().unwrap().insert(user, Arc::new(grants));
    }

    /// Another project of the tenant's organization, which the tenant's member owns.
    pub async fn owned_project(&self, tenant: Tenant) -> Tenant {
        let project: ProjectId = self.test.db.ambient().id();
        self.test.project(tenant.org, project).await;
        self.places.0.lock().unwrap().insert(project, tenant.org);
        let (org, member) = (tenant.org.uuid(), tenant.member.uuid());
        self.sql(&format!(
            "UPDATE tenant_memberships SET role = 'owner' WHERE org_id = '{org}' AND user_id = '{member}'"
        ))
        .await;
        let mut grants = Grants::default();
        grants.orgs.insert(tenant.org, OrgGrant { role: Role::OrgOwner, suspended: false });
        self.people.0.lock().unwrap().insert(tenant.member, Arc::new(grants));
        Tenant { project, ..tenant }
    }

    pub async fn delete_project(&self, tenant: Tenant) -> Answer {
        self.send(tenant.member, Method::DELETE, &tenant.project.to_string(), None, None).await
    }

    pub async fn stores_key(&self, user: UserId) {
        let id = user.uuid();
        self.sql(&format!(
            "INSERT INTO user_ssh_keys (id, user_id, name, key_type, fingerprint, public_key, created_at)
             VALUES (gen_random_uuid(), '{id}', 'laptop', 'ssh-ed25519', '{id}', 'ssh-ed25519 AAAA{}', now())",
            id.simple()
        ))
        .await;
    }

    pub async fn region(&self, code: &str) {
        self.sql(&format!(
            "INSERT INTO regions (code, name, created_at, updated_at) VALUES ('{code}', '{code}', now(), now())"
        ))
        .await;
    }

    /// An active node with so many free H200 slots, all that placement asks for.
    pub async fn node(&self, region: &str, slots: usize) -> NodeId {
        let node: NodeId = self.test.db.ambient().id();
        let ids: Vec<String> = (0..slots)
            .map(|n| {
                let slot: SlotId = self.test.db.ambient().id();
                format!(
                    "('{}', '{}', {n}, 'gpu', 'available', '0000:{:02x}:00.0', 'H200', 'nvme-{n}', {}, 'vf',
                      '0000:a0:00.{n}', 'healthy', now(), now())",
                    slot.uuid(),
                    node.uuid(),
                    0x10 + n,
                    n / 4
                )
            })
            .collect();
        self.sql(&format!(
            "INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                 VALUES ('{0}', 'host-{1}', '{region}', 'active', now(), now(), now());
             INSERT INTO node_resource_slots (id, node_id, slot_index, kind, state, pci_address, model, nvme_device,
                 numa_node, fabric_mode, fabric_vf, health, created_at, updated_at) VALUES {2}",
            node.uuid(),
            node.uuid().simple(),
            ids.join(", ")
        ))
        .await;
        node
    }

    pub async fn raw(
        &self,
        user: UserId,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/projects/{path}"))
            .header("authorization", format!("Bearer {user}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap()
    }

    pub async fn send(
        &self,
        user: UserId,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let headers: Vec<_> = key.map(|key| ("x-idempotency-key", key)).into_iter().collect();
        let response = self.raw(user, method, path, &headers, body).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        self.answers.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes));
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status, body }
    }

    /// With a fresh idempotency key.
    pub async fn post(&self, tenant: Tenant, path: &str, body: Value) -> Answer {
        let key = self.test.db.ambient().uuid().to_string();
        let path = format!("{}/{path}", tenant.project);
        self.send(tenant.member, Method::POST, &path, Some(&key), Some(body)).await
    }

    pub async fn launch(&self, tenant: Tenant, body: Value) -> Answer {
        self.post(tenant, "allocations", body).await
    }

    pub async fn get(&self, tenant: Tenant, path: &str) -> Answer {
        let path = format!("{}/{path}", tenant.project);
        self.send(tenant.member, Method::GET, &path, None, None).await
    }

    pub async fn as_system(&self) -> WriteTx {
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        self.test.db.write(Permit::system("test", origin), "allocation.test").await.unwrap()
    }
}

pub fn slice(gpus: i32) -> Value {
    json!({ "sku": "h200-sxm-slice", "gpus": gpus })
}

pub fn whole() -> Value {
    json!({ "sku": "h200-sxm-baremetal-8g" })
}

/// The same request from many at once.
pub async fn at_once(world: &Arc<World>, requests: Vec<(Tenant, Value)>) -> Vec<Answer> {
    let running: Vec<_> = requests
        .into_iter()
        .map(|(tenant, body)| {
            let world = world.clone();
            tokio::spawn(async move { world.launch(tenant, body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for one in running {
        answers.push(one.await.unwrap());
    }
    answers
}

pub fn won(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count()
}

pub fn refused(answers: &[Answer], code: &str) -> usize {
    answers.iter().filter(|answer| answer.code() == code).count()
}
