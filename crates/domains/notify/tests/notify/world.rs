//! Organizations and people, events that happen, and the endpoints as a client meets them.

use std::sync::Arc;

use axum::{Router, body::Body};
use bus::Bus;
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Limits;
use events::billing::{BalanceDepleted, LowBalanceWarning};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use identity::api::{InvitationLinks, MemberRole, PlatformRole, Policies};
use kernel::{
    CorrelationId, Event, ManualClock, Role, Secret,
    ids::{OrgId, UserId},
};
use notify::{Notify, Relay, Settings, Smtp, WebhookClient, jobs, model::delivery::Channel};
use pg::{Origin, Permit};
use serde_json::Value;
use testkit::{Callers, TestDb};
use testworld::Tenants;
use tower::ServiceExt as _;

pub struct World {
    pub test: TestDb,
    pub notify: Notify,
    pub relay: Relay,
    pub tenants: Tenants,
    pub org: OrgId,
    pub owner: UserId,
    clock: Arc<ManualClock>,
    bus: Bus,
    callers: Callers,
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
        let ambient = clock.ambient();
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
        let callers = Callers::default();
        let services = callers.services(&test.db, policies);
        let router = endpoint::router(services, Limits::default(), notify::endpoints(&notify));
        let tenants = Tenants::new(&test.db);
        let owner = tenants.user_with("owner", Some("owner@example.org")).await;
        let org = tenants.org_named("Org", "org", owner).await.id;
        callers.org_role(owner, org, Role::OrgOwner);
        let world = Self { test, notify, relay, tenants, org, owner, clock, bus, callers, router, listening };
        world.forget_how_it_came().await;
        // The consumers exist before anything happens, as they do in an installation.
        world.consume().await;
        world
    }

    pub async fn sql(&self, sql: &str) {
        self.test.sql(sql).await;
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.test.one(sql).await
    }

    /// Tests are about other events than those of the people and organizations that they need.
    async fn forget_how_it_came(&self) {
        self.sql("DELETE FROM outbox_events WHERE event_type LIKE 'identity.%'").await;
    }

    pub async fn person(&self, name: &str, email: Option<&str>) -> UserId {
        let user = self.tenants.user_with(name, email).await;
        self.forget_how_it_came().await;
        user
    }

    /// Another organization, with an owner; answers both.
    pub async fn second_org(&self) -> (OrgId, UserId) {
        let owner = self.person("second-owner", None).await;
        let org = self.tenants.org_named("Org", "second", owner).await.id;
        self.forget_how_it_came().await;
        self.callers.org_role(owner, org, Role::OrgOwner);
        (org, owner)
    }

    pub async fn member(&self, role: &str, email: &str) -> UserId {
        let user = self.person(role, Some(email)).await;
        let role: MemberRole = role.parse().unwrap();
        self.tenants.member(self.org, user, role).await;
        self.forget_how_it_came().await;
        self.callers.org_role(user, self.org, role.in_org());
        user
    }

    pub async fn platform(&self, role: PlatformRole, email: &str) -> UserId {
        let user = self.tenants.platform_user(role.role().name(), email, role).await;
        self.forget_how_it_came().await;
        self.callers.platform_role(user, Role::PlatformOps);
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
        self.deliver().await;
    }

    /// Everybody who wants to know handles what happened.
    pub async fn deliver(&self) {
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

    pub fn low_balance(&self) -> LowBalanceWarning {
        LowBalanceWarning {
            org_id: self.org,
            balance_minor: 450,
            threshold_minor: 500,
            currency: "USD".to_owned(),
            depletes_at: None,
        }
    }

    pub fn depleted(&self) -> BalanceDepleted {
        BalanceDepleted { org_id: self.org, balance_minor: -12, currency: "USD".to_owned() }
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
