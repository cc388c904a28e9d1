//! A ledger with organizations and meters, and a clock that is moved by hand.

use std::sync::Arc;

use billing::{
    Billing, Settings,
    api::{
        Account, Fault, Launch, Line, Posting, PostingKind, credit, credit_end, funds_hold, meter_close,
        meter_open, post,
    },
    service::accrual::{Ticked, tick},
};
use chrono::{DateTime, TimeDelta, Utc};
use identity::api::Policies;
use kernel::{
    Ambient, CorrelationId, Failure, ManualClock, Secret,
    ids::{AllocationId, FindingId, OrgId, ProjectId},
};
use pg::{Origin, Permit, Roles, WriteTx};
use testkit::TestDb;
use testworld::{Tenant, Tenants};

pub struct Kit {
    pub billing: Billing,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub tenant: Tenant,
    pub org: OrgId,
    pub project: ProjectId,
}

/// A clock and what goes with it.
pub fn clocked(at: &str) -> (Arc<ManualClock>, Ambient) {
    let clock = ManualClock::starting_at(at.parse().unwrap());
    (clock.clone(), clock.ambient())
}

impl Kit {
    pub async fn new() -> Self {
        Self::at("2031-05-06T07:00:00.25Z").await
    }

    pub async fn at(at: &str) -> Self {
        let (clock, ambient) = clocked(at);
        Self::on(TestDb::create_with(ambient).await, clock).await
    }

    /// An organization with a million, and launches that set nothing aside.
    pub async fn on(test: TestDb, clock: Arc<ManualClock>) -> Self {
        let tenant = Tenants::new(&test.db).tenant("acme").await;
        let Tenant { org, project, .. } = tenant;
        let kit = Self { billing: worker(&test), test, clock, tenant, org, project };
        kit.policy("billing.launch_hold_seconds", 0).await;
        kit.fund(org, 1_000_000).await;
        kit
    }

    pub async fn policy(&self, key: &str, value: i64) {
        self.test.set_global_policy(key, &value.to_string()).await;
        self.write("policy").await.roll_back().await;
        let mut tx = self.write("policy.set").await;
        tx.invalidate("policy".to_owned());
        tx.commit(None).await.unwrap();
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    pub async fn write(&self, action: &'static str) -> WriteTx {
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        self.test.db.write(Permit::system("test", origin), action).await.unwrap()
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

    pub async fn tick(&self) -> Ticked {
        tick(&self.billing).await.unwrap()
    }

    pub async fn try_tick(&self) -> Result<Ticked, Failure> {
        tick(&self.billing).await
    }

    /// Another organization with so much.
    pub async fn another_tenant(&self, slug: &str, amount: i64) -> Tenant {
        let tenant = Tenants::new(&self.test.db).tenant(slug).await;
        self.fund(tenant.org, amount).await;
        tenant
    }

    pub async fn fund(&self, org: OrgId, amount: i64) {
        let mut tx = self.write("test.fund").await;
        let posting = Posting {
            org,
            kind: PostingKind::Topup,
            reference: None,
            reason: "test".to_owned(),
            corrects: None,
            lines: vec![Line::new(Account::Prepaid, amount), Line::new(Account::CashStripe, -amount)],
        };
        post(&self.billing, &mut tx, posting).await.unwrap().unwrap();
        tx.commit(None).await.unwrap();
    }

    /// An allocation that became active now.
    pub async fn launch(&self, price: i64, units: i32) -> AllocationId {
        self.launch_of(self.tenant, price, units).await
    }

    pub async fn launch_of(&self, tenant: Tenant, price: i64, units: i32) -> AllocationId {
        let allocation: AllocationId = self.test.db.ambient().id();
        let launch = Launch {
            org: tenant.org,
            project: tenant.project,
            person: None,
            sku: "h200".to_owned(),
            unit: billing::api::MeterUnit::GpuHour,
            units,
            unit_price_minor: price,
            currency: "USD".to_owned(),
            allocations: vec![allocation],
        };
        let mut tx = self.write("test.launch").await;
        funds_hold(&self.billing, &mut tx, &launch).await.unwrap();
        meter_open(&mut tx, allocation, self.now()).await.unwrap();
        tx.commit(None).await.unwrap();
        allocation
    }

    pub async fn close(&self, allocation: AllocationId) {
        let mut tx = self.write("test.close").await;
        meter_close(&mut tx, allocation, self.now()).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    /// Stands still since `ago` seconds.
    pub async fn pause(&self, allocation: AllocationId, ago: i64) {
        let (since, now) = (self.now() - TimeDelta::seconds(ago), self.now());
        let sql = format!(
            "SELECT meter_pause('{}', '{since}', gen_random_uuid(), ROW(NULL, 'sick', '{{}}')::pause_cause, '{now}', gen_random_uuid(), gen_random_uuid())",
            allocation.uuid()
        );
        self.one::<Option<i64>>(&sql).await.unwrap();
    }

    pub async fn resume(&self, allocation: AllocationId) {
        let (now, id) = (self.now(), allocation.uuid());
        let sql = format!(
            "SELECT meter_resume(p.id, '{now}') FROM meter_pauses p JOIN meters m ON m.id = p.meter_id
             WHERE m.allocation_id = '{id}' AND p.resumed_at IS NULL"
        );
        assert!(self.one::<bool>(&sql).await);
    }

    /// A fault of the hardware, which is owed for; without an end it lasts.
    pub async fn sick(
        &self,
        allocation: AllocationId,
        since: DateTime<Utc>,
        until: Option<DateTime<Utc>>,
    ) -> FindingId {
        let finding = self.test.db.ambient().id();
        let mut tx = self.write("test.credit").await;
        let fault = Fault { finding, code: "xid.79", part: "gpu", since, until, tenant_may_be_cause: false };
        credit(&self.billing, &mut tx, allocation, fault).await.unwrap();
        tx.commit(None).await.unwrap();
        finding
    }

    pub async fn healed(&self, finding: FindingId) {
        let mut tx = self.write("test.credit_end").await;
        credit_end(&mut tx, finding, self.now()).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    pub async fn posted(&self, allocation: AllocationId) -> i64 {
        self.one(&format!("SELECT posted_minor FROM meters WHERE allocation_id = '{}'", allocation.uuid()))
            .await
    }

    pub async fn meter_state(&self, allocation: AllocationId) -> String {
        self.one(&format!("SELECT state FROM meters WHERE allocation_id = '{}'", allocation.uuid())).await
    }

    pub async fn state(&self) -> String {
        self.one(&format!("SELECT state FROM billing_accounts WHERE org_id = '{}'", self.org.uuid())).await
    }

    pub async fn total(&self) -> i64 {
        let sql = "SELECT prepaid_after + held_after + promo_after FROM ledger_postings WHERE org_id = '{}' ORDER BY seq DESC LIMIT 1";
        self.one(&sql.replace("{}", &self.org.uuid().to_string())).await
    }

    pub async fn events_emitted(&self, event: &str) -> i64 {
        self.one(&format!("SELECT count(*) FROM outbox_events WHERE event_type = 'billing.{event}'")).await
    }

    pub async fn holds(&self) {
        testkit::money::hold(&self.test).await;
    }
}

/// A worker of its own: nothing in memory is shared with another.
pub fn worker(test: &TestDb) -> Billing {
    let settings = Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new([7; 32]) };
    Billing::new(test.db.clone(), Policies::new(test.db.clone()), settings)
}
