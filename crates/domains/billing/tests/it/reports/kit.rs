//! An organization with projects and meters, administrators, the endpoints, and a clock that is moved by hand.

use std::{collections::HashMap, sync::Arc};

use axum::{Router, body::Body};
use billing::{
    Billing,
    api::{Launch, Line, Policies, Posting, PostingKind},
};
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::Limits;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kernel::{
    Failure, ManualClock, Role,
    ids::{AllocationId, OrgId, ProjectId, UserId},
};
use serde_json::Value;
use testkit::{Callers, TestDb};
use testmoney::{TestMoney, launch_request};
use testworld::{Tenant, Tenants};
use tower::ServiceExt as _;

pub struct Kit {
    pub billing: Billing,
    money: TestMoney,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub org: OrgId,
    pub projects: [ProjectId; 2],
    pub admin: UserId,
    pub other_admin: UserId,
    pub owner: UserId,
    pub viewer: UserId,
    router: Router,
}

/// An answer of the service.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub content: String,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }

    pub fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text());
        self.json()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or("").to_owned()
    }

    /// The lines of a table, by their columns.
    pub fn table(&self) -> Vec<HashMap<String, String>> {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        csv::Reader::from_reader(&self.bytes[..]).deserialize().map(|row| row.unwrap()).collect()
    }
}

impl Kit {
    pub async fn new() -> Self {
        Self::at("2031-05-06T07:00:00.25Z").await
    }

    pub async fn at(at: &str) -> Self {
        Self::with(at, |billing| billing).await
    }

    /// Billing as an installation configures it.
    pub async fn with(at: &str, configured: impl FnOnce(Billing) -> Billing) -> Self {
        let clock = ManualClock::starting_at(at.parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient.clone()).await;
        test.lift_rate_limits().await;
        let mut money = TestMoney::new(&test.db);
        money.billing = configured(money.billing);
        let billing = money.billing.clone();
        let tenants = Tenants::new(&test.db);
        let Tenant { org, project, owner } = tenants.tenant("acme").await;
        let projects = [project, tenants.project(org, "second").await.id];
        let callers = Callers::default();
        let [admin, other_admin, viewer] = std::array::from_fn(|_| ambient.id());
        callers.platform_role(admin, Role::PlatformAdmin);
        callers.platform_role(other_admin, Role::PlatformAdmin);
        callers.org_role(owner, org, Role::OrgOwner);
        callers.project_role(viewer, projects[0], Role::ProjectViewer);
        for project in projects {
            callers.project(org, project);
        }
        let services = callers.services(&test.db, Policies::new(test.db.clone()));
        let router = endpoint::router(services, Limits::default(), billing::endpoints(&billing));
        Self { billing, money, test, clock, org, projects, admin, other_admin, owner, viewer, router }
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    pub async fn policy(&self, key: &str, value: i64) {
        self.test.change_global_policy(key, value).await;
    }

    pub async fn call(&self, who: UserId, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .header("authorization", format!("Bearer {who}"))
            .header("content-type", "application/json");
        if method == Method::POST {
            request = request.header("x-idempotency-key", self.test.db.ambient().uuid().to_string());
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let content = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
        let (status, content) = (response.status(), content.unwrap_or_default());
        let bytes = response.into_body().collect().await.unwrap().to_bytes().to_vec();
        Answer { status, content, bytes }
    }

    pub async fn get(&self, who: UserId, path: &str) -> Answer {
        self.call(who, Method::GET, path, None).await
    }

    /// What the owner sees of the organization's money.
    pub async fn money(&self, path: &str) -> Answer {
        self.get(self.owner, &format!("/api/v1/orgs/{}/billing/{path}", self.org)).await
    }

    pub async fn adjust(&self, body: Value) -> Answer {
        let mut body = body;
        body["org_id"] = self.org.to_string().into();
        body["reason"] = body.get("reason").cloned().unwrap_or_else(|| "because".into());
        self.call(self.admin, Method::POST, "/api/v1/platform/billing/adjustments", Some(body)).await
    }

    /// As the superuser, past every trigger.
    pub async fn tamper(&self, sql: &str) {
        self.test.tamper(sql).await;
    }

    pub async fn one<T: testkit::Scalar>(&self, sql: &str) -> T {
        self.test.one(sql).await
    }

    pub async fn post(&self, kind: PostingKind, reason: &str, lines: Vec<Line>) {
        let reason = reason.to_owned();
        let posting = Posting { org: self.org, kind, reference: None, reason, corrects: None, lines };
        self.money.post(posting).await;
    }

    pub async fn fund(&self, amount: i64) {
        self.money.fund(self.org, amount).await;
    }

    pub async fn hold_create(
        &self,
        project: usize,
        sku: &str,
        price: i64,
        units: i32,
    ) -> Result<AllocationId, Failure> {
        let launch = self.request(project, sku, price, units);
        self.money.hold(&launch).await?;
        Ok(launch.allocations[0])
    }

    /// By the owner.
    fn request(&self, project: usize, sku: &str, price: i64, units: i32) -> Launch {
        let place = (self.org, self.projects[project]);
        let request = launch_request(&self.test.db, place, price, units);
        Launch { person: Some(self.owner.uuid()), sku: sku.to_owned(), ..request }
    }

    pub async fn launch(
        &self,
        project: usize,
        sku: &str,
        price: i64,
        units: i32,
    ) -> Result<AllocationId, Failure> {
        let made = self.money.launch(self.request(project, sku, price, units)).await?;
        Ok(made[0])
    }

    pub async fn fail(&self, allocation: AllocationId) {
        self.money.launch_fail(allocation).await;
    }

    pub async fn close(&self, allocation: AllocationId) {
        self.money.meter_close(allocation).await;
    }

    /// Stands still since `ago` seconds; what was charged since is given back.
    pub async fn pause(&self, allocation: AllocationId, ago: i64) {
        self.money.fault(allocation, self.now() - TimeDelta::seconds(ago), None).await;
    }

    /// Accrues until nothing is due.
    pub async fn tick(&self) {
        self.money.accrue().await;
    }

    /// What platform accounts gained by charges and gifts that were posted in a month.
    pub async fn charged(&self, month: &str) -> i64 {
        self.one(&format!(
            "SELECT coalesce(sum(amount_minor), 0)::bigint FROM ledger_lines
             WHERE account IN ('revenue', 'credits_granted') AND to_char(posted_at AT TIME ZONE 'UTC', 'YYYY-MM') = '{month}'"
        ))
        .await
    }
}

/// `-12.34` in minor units.
pub fn minor(decimal: &str) -> i64 {
    let (whole, rest) = decimal.split_once('.').unwrap();
    assert_eq!(rest.len(), 2, "{decimal}");
    let value: i64 = format!("{}{rest}", whole.trim_start_matches('-')).parse().unwrap();
    if decimal.starts_with('-') { -value } else { value }
}

pub fn sum<'a>(values: impl IntoIterator<Item = &'a Value>, field: &str) -> i64 {
    values.into_iter().map(|value| value[field].as_i64().unwrap()).sum()
}
