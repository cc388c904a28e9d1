//! Organizations and people, events that happen, and the endpoints as a client meets them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{Router, body::Body};
use bus::Bus;
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::{
    Authenticator, Caller, ClientInfo, Directory, Grants, Limits, OrgFacts, OrgGrant, ProjectFacts, Services,
};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use identity::api::{InvitationLinks, Policies};
use kernel::{
    Ambient, CorrelationId, Entropy, Event, Failure, ManualClock, Role, Secret, Stream,
    ids::{InvitationId, OrgId, ProjectId, SessionId, UserId},
};
use notify::{Notify, Relay, Settings, Smtp, WebhookClient, jobs, model::delivery::Channel};
use pg::{Origin, Permit, Roles};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use testkit::TestDb;
use tower::ServiceExt as _;
use uuid::Uuid;

macro_rules! events {
    ($($name:ident = $type:literal, $stream:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        #[derive(Clone, Serialize, JsonSchema)]
        pub struct $name { $(pub $field: $kind),* }
        impl Event for $name {
            const TYPE: &'static str = $type;
            const STREAM: Stream = Stream::$stream;
            const SUMMARY: &'static str = "as its domain says it";
        }
    )*};
}

events! {
    LowBalance = "billing.low_balance_warning", Billing { org_id: OrgId, balance_minor: i64, threshold_minor: i64, currency: String }
    Depleted = "billing.balance_depleted", Billing { org_id: OrgId, balance_minor: i64, currency: String }
    AdjustmentWaiting = "billing.adjustment_waiting", Billing { adjustment_id: kernel::ids::AdjustmentId, org_id: OrgId, kind: String, amount_minor: i64, currency: String, reason: String, proposed_by: Option<UserId> }
    LaunchFailed = "provisioning.failed", Provisioning { allocation_id: kernel::ids::AllocationId, project_id: ProjectId, group_id: Option<Uuid>, reason: String, creator_id: Option<UserId> }
    NodeOffline = "nodes.offline", Nodes { node_id: kernel::ids::NodeId, region: String, reason: String }
}

struct SystemEntropy(Ambient);

impl Entropy for SystemEntropy {
    fn fill(&self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

/// Tokens are ids of people, and what they may do is known here.
#[derive(Clone, Default)]
struct People(Arc<Mutex<HashMap<UserId, Grants>>>);

#[async_trait]
impl Authenticator for People {
    async fn authenticate(&self, bearer: &str, _: &ClientInfo) -> Result<Caller, Failure> {
        let id: UserId = bearer.parse()?;
        let grants = Arc::new(self.0.lock().unwrap().get(&id).cloned().unwrap_or_default());
        Ok(Caller::User { id, session: SessionId::from(Uuid::from_u128(1)), grants })
    }
}

struct Places;

#[async_trait]
impl Directory for Places {
    async fn org(&self, _: OrgId) -> Result<Option<OrgFacts>, Failure> {
        Ok(Some(OrgFacts { suspended: false }))
    }
    async fn project(&self, _: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        Ok(None)
    }
    async fn invitation(&self, _: InvitationId) -> Result<Option<OrgId>, Failure> {
        Ok(None)
    }
}

pub struct World {
    pub test: TestDb,
    pub notify: Notify,
    pub relay: Relay,
    pub org: OrgId,
    pub owner: UserId,
    clock: Arc<ManualClock>,
    bus: Bus,
    people: People,
    router: Router,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl Answer {
    pub fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    pub fn refused(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self.body["error"].clone()
    }
}

/// Mail goes to a port of this machine, where somebody may or may not listen.
pub fn smtp(port: u16) -> Smtp {
    Smtp {
        host: "127.0.0.1".to_owned(),
        port,
        encryption: "none".to_owned(),
        username: None,
        password: None,
        from: "GPUaaS <no-reply@gpuaas.test>".to_owned(),
    }
}

impl World {
    /// With webhooks to this machine allowed.
    pub async fn new(smtp_port: u16) -> Self {
        Self::with(smtp_port, true).await
    }

    pub async fn with(smtp_port: u16, private_webhooks: bool) -> Self {
        // Certificates are checked by the provider that mains install.
        drop(testkit::http_client());
        let start: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
        let clock = ManualClock::starting_at(start);
        let ambient = Ambient::new(clock.clone(), Arc::new(SystemEntropy(Ambient::system())));
        let test = TestDb::create_with(ambient).await;
        test.lift_rate_limits().await;
        let policies = Policies::new(test.db.clone());
        let settings = Settings {
            smtp: Some(smtp(smtp_port)),
            public_url: "https://gpuaas.test".to_owned(),
            private_webhooks,
            sealer: trust::Sealer::for_purpose(&Secret::new([7; 32]), b"webhooks").unwrap(),
            invitation_links: InvitationLinks::new(&Secret::new([7; 32]), "https://gpuaas.test", true),
        };
        let (wake, listening) = test.db.listen();
        let notify = Notify::new(test.db.clone(), policies.clone(), settings).listening(wake.clone());
        let relay = Relay::new(notify.clone(), WebhookClient::new(private_webhooks).unwrap());
        let bus = Bus::on_postgres(test.db.clone(), wake);
        let people = People::default();
        let services = Services {
            db: test.db.clone(),
            authenticator: Arc::new(people.clone()),
            directory: Arc::new(Places),
            policies: Arc::new(policies),
            answers: Arc::new(trust::Sealer::for_purpose(&Secret::new([7; 32]), b"answers").unwrap()),
        };
        let router = endpoint::router(services, Limits::default(), notify::endpoints(&notify));
        let (org, owner) = (test.db.ambient().id(), test.db.ambient().id());
        let world = Self { test, notify, relay, org, owner, clock, bus, people, router, listening };
        // The consumers exist before anything happens, as they do in an installation.
        world.consume().await;
        world.org_made(org).await;
        world.joins(org, owner, "owner", Some("owner@example.org")).await;
        world
    }

    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        let mut admin = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut admin).await.unwrap()
    }

    pub async fn org_made(&self, org: OrgId) {
        let id = org.uuid();
        self.sql(&format!(
            "INSERT INTO organizations (id, kind, slug, name, created_at, updated_at)
             VALUES ('{id}', 'enterprise', 'o-{}', 'Org', now(), now())",
            id.simple()
        ))
        .await;
    }

    pub async fn person(&self, name: &str, email: Option<&str>) -> UserId {
        let user: UserId = self.test.db.ambient().id();
        self.person_made(user, name, email).await;
        user
    }

    async fn person_made(&self, user: UserId, name: &str, email: Option<&str>) {
        let (id, email) = (user.uuid(), email.map_or("NULL".to_owned(), |email| format!("'{email}'")));
        self.sql(&format!(
            "INSERT INTO users (id, issuer, subject, email, name, created_at, updated_at)
             VALUES ('{id}', 'test', '{id}', {email}, '{name}', now(), now())"
        ))
        .await;
    }

    /// Somebody new becomes a member.
    pub async fn joins(&self, org: OrgId, user: UserId, role: &str, email: Option<&str>) {
        self.person_made(user, role, email).await;
        self.sql(&format!(
            "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at)
             VALUES ('{}', '{}', '{role}', now(), now())",
            org.uuid(),
            user.uuid()
        ))
        .await;
        let role = match role {
            "owner" => Role::OrgOwner,
            "admin" => Role::OrgAdmin,
            _ => Role::OrgMember,
        };
        let mut grants = Grants::default();
        grants.orgs.insert(org, OrgGrant { role, suspended: false });
        self.people.0.lock().unwrap().insert(user, grants);
    }

    /// Another organization, with an owner; answers both.
    pub async fn second_org(&self) -> (OrgId, UserId) {
        let (org, owner) = (self.test.db.ambient().id(), self.test.db.ambient().id());
        self.org_made(org).await;
        self.joins(org, owner, "owner", None).await;
        (org, owner)
    }

    pub async fn member(&self, role: &str, email: &str) -> UserId {
        let user = self.test.db.ambient().id();
        self.joins(self.org, user, role, Some(email)).await;
        user
    }

    pub async fn platform(&self, role: &str, email: &str) -> UserId {
        let user = self.person(role, Some(email)).await;
        self.sql(&format!(
            "INSERT INTO platform_bindings (user_id, role, created_at) VALUES ('{}', '{role}', now())",
            user.uuid()
        ))
        .await;
        let grants = Grants { platform: vec![Role::PlatformOps], ..Grants::default() };
        self.people.0.lock().unwrap().insert(user, grants);
        user
    }

    pub fn passes(&self, time: TimeDelta) {
        self.clock.advance(time);
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    /// Something happens, and everybody who wants to know handles it.
    pub async fn happens<E: Event>(&self, event: &E) {
        self.happens_in(self.org, event).await;
    }

    pub async fn happens_in<E: Event>(&self, org: OrgId, event: &E) {
        self.passes(TimeDelta::seconds(1));
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        let mut tx = self.test.db.write(Permit::system("test", origin), "test.happens").await.unwrap();
        tx.emit_for(org, None, event).unwrap();
        tx.commit(None).await.unwrap();
        self.bus.relay().relay_batch().await.unwrap();
        self.consume().await;
    }

    pub async fn consume(&self) {
        for registration in jobs::consumers(&self.notify) {
            let name = registration.name();
            let runner = self.bus.runner(registration);
            while runner.run_once().await.unwrap() > 0 {}
            let dead = format!("SELECT count(*) FROM dead_letters WHERE consumer = '{name}'");
            assert_eq!(self.count(&dead).await, 0, "{name} failed");
        }
    }

    pub fn low_balance(&self) -> LowBalance {
        LowBalance { org_id: self.org, balance_minor: 450, threshold_minor: 500, currency: "USD".to_owned() }
    }

    pub fn depleted(&self) -> Depleted {
        Depleted { org_id: self.org, balance_minor: -12, currency: "USD".to_owned() }
    }

    /// Sends what is due now.
    pub async fn send(&self, channel: Channel) -> usize {
        let mut sent = 0;
        loop {
            match jobs::send_due(&self.relay, channel).await.unwrap() {
                0 => return sent,
                count => sent += count,
            }
        }
    }

    /// Goes on for so long, trying again whenever something is due.
    pub async fn goes_on(&self, channel: Channel, steps: u32, step: TimeDelta) {
        for _ in 0..steps {
            self.passes(step);
            self.send(channel).await;
        }
    }

    pub async fn call(&self, user: UserId, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {user}"));
        let body = match body {
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        Answer { status, body }
    }

    /// A stream of events: its body, to be read as it comes.
    pub async fn stream(&self, user: UserId, path: &str, last_event_id: Option<i64>) -> Body {
        let mut request = Request::builder().uri(path).header("authorization", format!("Bearer {user}"));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id.to_string());
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    pub async fn get(&self, user: UserId, path: &str) -> Value {
        self.call(user, Method::GET, path, None).await.ok()
    }

    pub async fn post(&self, user: UserId, path: &str, body: Value) -> Answer {
        self.call(user, Method::POST, path, Some(body)).await
    }

    pub async fn notifications(&self, user: UserId) -> Vec<Value> {
        self.get(user, "/api/v1/me/notifications").await["items"].as_array().unwrap().clone()
    }
}
