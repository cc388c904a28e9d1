//! Two organizations, people with keys, nodes, and the endpoints as a client meets them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::{Router, body::Body};
use capacity::{
    Capacity, Money, Parts, Reimager, Unbilled,
    workflow::reimage::{Installs, Reimaging},
};
use endpoint::Limits;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use identity::api::{MemberRole, Policies};
use kernel::{
    CorrelationId, Failure, Role, Secret,
    ids::{NodeId, OrgId, ProjectId, UserId},
};
use pg::{Origin, Permit, WriteTx};
use serde_json::{Value, json};
use testfleet::{TestFleet, topology_in_numa_nodes};
use testkit::{Callers, TestDb};
use testworld::Tenants;
use tower::ServiceExt as _;

struct NoReimaging;

#[async_trait]
impl Reimager for NoReimaging {
    fn installs(&self) -> Installs {
        Installs::Simulated
    }
    async fn begin(&self, _: NodeId, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn reimage_poll(&self, _: NodeId, _: &str) -> Result<Reimaging, Failure> {
        Ok(Reimaging::Done)
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
    tenants: Tenants,
    fleet: TestFleet,
    callers: Callers,
    listening: tokio::task::JoinHandle<()>,
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
        let policies = Policies::new(test.db.clone());
        let parts = testfleet::Parts {
            clock: None,
            policies: Arc::new(policies.clone()),
            completions: Vec::new(),
            auto_approve_simulated: false,
        };
        let fleet = TestFleet::start(&test.db, parts).await;
        let (wake, listening) = test.db.listen();
        let capacity = Capacity::new(Parts {
            db: test.db.clone(),
            fleet: fleet.fleet.clone(),
            policies: policies.clone(),
            money: money(&test.db, &policies),
            reimager: Arc::new(NoReimaging),
        })
        .listening(wake);
        let callers = Callers::default();
        let services = callers.services(&test.db, policies);
        let auth = identity::AuthInfo {
            issuer: "https://gpuaas.test".to_owned(),
            cli_client_id: "cli".to_owned(),
            audience: "gpuaas".to_owned(),
        };
        let links = identity::api::InvitationLinks::new(&Secret::new([7; 32]), "https://gpuaas.test", false);
        let mut endpoints = capacity::endpoints(&capacity);
        endpoints.extend(identity::endpoints(identity::Identity::new(test.db.clone(), auth, links)));
        let router = endpoint::router(services, Limits::default(), endpoints);
        let tenants = Tenants::new(&test.db);
        let tenant = tenant_made(&tenants, &callers, "first").await;
        let answers = Mutex::default();
        Arc::new(Self { capacity, fleet, tenants, test, tenant, answers, router, callers, listening })
    }

    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.test.one(sql).await
    }

    pub async fn another_tenant(&self, slug: &str) -> Tenant {
        tenant_made(&self.tenants, &self.callers, slug).await
    }

    /// Somebody new becomes a member of the organization and of the project, without a key.
    pub async fn joins(&self, tenant: Tenant, name: &str) -> Tenant {
        joined(&self.tenants, &self.callers, tenant, name).await
    }

    /// The same with a role that only reads.
    pub async fn joins_as_viewer(&self, tenant: Tenant, name: &str) -> Tenant {
        let joined = self.joins(tenant, name).await;
        self.callers.project_role(joined.member, tenant.project, Role::ProjectViewer);
        joined
    }

    /// Another project of the tenant's organization, which the tenant's member owns.
    pub async fn owned_project(&self, tenant: Tenant) -> Tenant {
        let slug = self.test.db.ambient().uuid().to_string();
        let project = self.tenants.project(tenant.org, &slug).await.id;
        self.tenants.member_update(tenant.org, tenant.member, MemberRole::Owner).await;
        self.callers.project(tenant.org, project);
        self.callers.org_role(tenant.member, tenant.org, Role::OrgOwner);
        Tenant { project, ..tenant }
    }

    pub async fn delete_project(&self, tenant: Tenant) -> Answer {
        self.send(tenant.member, Method::DELETE, &tenant.project.to_string(), None, None).await
    }

    pub async fn region(&self, code: &str) {
        self.fleet.region(code).await;
    }

    /// An active node with so many free H200 slots, all that placement asks for.
    pub async fn node(&self, region: &str, slots: usize) -> NodeId {
        let hostname = format!("host-{}", self.test.db.ambient().uuid().simple());
        self.fleet.node_active(region, &hostname, &topology_in_numa_nodes(slots)).await.id
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

/// With a member who has a key.
async fn tenant_made(tenants: &Tenants, callers: &Callers, slug: &str) -> Tenant {
    let made = tenants.tenant(slug).await;
    callers.project(made.org, made.project);
    let tenant = Tenant { org: made.org, project: made.project, member: made.owner };
    let tenant = joined(tenants, callers, tenant, &format!("member-of-{slug}")).await;
    tenants.ssh_key(tenant.member, slug).await;
    tenant
}

async fn joined(tenants: &Tenants, callers: &Callers, tenant: Tenant, name: &str) -> Tenant {
    let member = tenants.user(name).await;
    tenants.member(tenant.org, member, MemberRole::Member).await;
    tenants.project_member(tenant.org, tenant.project, member, MemberRole::Member).await;
    callers.org_role(member, tenant.org, Role::OrgMember);
    callers.project_role(member, tenant.project, Role::ProjectMember);
    Tenant { member, ..tenant }
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
