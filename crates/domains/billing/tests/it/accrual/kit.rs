//! A ledger with organizations and meters, and a clock that is moved by hand.

use std::sync::Arc;

use billing::{
    Billing,
    service::{
        accrual::{Ticked, tick},
        evaluations::{QueueTurn, queue_evaluate},
        ledger::{Balance, balance_get},
        spend_caps::AccountPlace,
    },
};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, CorrelationId, Failure, ManualClock,
    ids::{AllocationId, FindingId, OrgId, ProjectId},
    policy::UNLIMITED,
};
use pg::{Origin, Permit, WriteTx};
use testkit::TestDb;
use testmoney::{TestMoney, launch_request};
use testworld::{Tenant, Tenants};
use uuid::Uuid;

pub struct Kit {
    pub billing: Billing,
    pub money: TestMoney,
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
        let (billing, money) = (worker(&test), TestMoney::new(&test.db));
        let kit = Self { billing, money, test, clock, tenant, org, project };
        kit.policy("billing.launch_hold_seconds", 0).await;
        // Whatever is given back for a fault, nobody is asked.
        kit.policy("billing.credit_approval_minor", UNLIMITED).await;
        kit.fund(org, 1_000_000).await;
        kit
    }

    pub async fn policy(&self, key: &str, value: i64) {
        self.test.change_global_policy(key, value).await;
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

    pub async fn one<T: testkit::Scalar>(&self, sql: &str) -> T {
        self.test.one(sql).await
    }

    pub async fn tick(&self) -> Ticked {
        tick(&self.billing).await.unwrap()
    }

    /// What the worker does when it hears that a meter changed.
    pub async fn evaluate(&self) -> QueueTurn {
        queue_evaluate(&self.billing).await.unwrap()
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
        self.money.fund(org, amount).await;
    }

    /// An allocation that became active now.
    pub async fn launch(&self, price: i64, units: i32) -> AllocationId {
        self.launch_of(self.tenant, price, units).await
    }

    pub async fn launch_of(&self, tenant: Tenant, price: i64, units: i32) -> AllocationId {
        let launch = launch_request(&self.test.db, (tenant.org, tenant.project), price, units);
        self.money.launch(launch).await.unwrap()[0]
    }

    /// A service account of the project that launches.
    pub async fn account(&self, name: &str) -> AccountPlace {
        let account = Tenants::new(&self.test.db).launcher(self.tenant, name).await;
        AccountPlace { org: self.org, project: self.project, account }
    }

    pub async fn close(&self, allocation: AllocationId) {
        self.money.meter_close(allocation).await;
    }

    /// Stands still since `ago` seconds.
    pub async fn pause(&self, allocation: AllocationId, ago: i64) {
        self.money.fault(allocation, self.now() - TimeDelta::seconds(ago), None).await;
    }

    pub async fn resume(&self, allocation: AllocationId) {
        let sql = format!(
            "SELECT finding_id FROM meter_pauses p JOIN meters m ON m.id = p.meter_id
             WHERE m.allocation_id = '{}' AND p.resumed_at IS NULL",
            allocation.uuid()
        );
        let finding = FindingId::from(self.one::<Uuid>(&sql).await);
        assert_eq!(self.money.fault_end(finding).await, 1);
    }

    /// A fault of the hardware, which is owed for; without an end it lasts.
    pub async fn sick(
        &self,
        allocation: AllocationId,
        since: DateTime<Utc>,
        until: Option<DateTime<Utc>>,
    ) -> FindingId {
        self.money.fault(allocation, since, until).await
    }

    pub async fn healed(&self, finding: FindingId) {
        self.money.fault_end(finding).await;
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

    /// As the API gives it.
    pub async fn balance(&self) -> Balance {
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        let mut read = self.test.db.read(&Permit::system("test", origin)).await.unwrap();
        balance_get(&self.billing, &mut read, self.org).await.unwrap()
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
    TestMoney::new(&test.db).billing
}
