//! Money for tests of domains: funded balances and meters that run, stand still and end, made by the services of
//! billing, so that ledger, holds, events and audit rows agree.
//!
//! It panics with a clear message rather than returning errors, except where a refusal is what a test is about.
#![allow(clippy::expect_used, clippy::panic, reason = "test support: a failure is a failed test")]

use billing::{
    Billing, Settings,
    api::{
        Account, Balances, Fault, Launch, Line, MeterUnit, Policies, Posted, Posting, PostingKind,
        balances_of, credit, credit_end, funds_hold, launch_failed, meter_close, meter_open, post,
    },
    model::budget_resource::BudgetWanted,
    service::{
        accrual::tick,
        budgets::budget_set,
        spend_caps::{AccountPlace, spend_cap_set},
    },
};
use chrono::{DateTime, Utc};
use kernel::{
    CorrelationId, Failure, Permission, Role, Secret,
    ids::{AllocationId, FindingId, OrgId, ProjectId},
};
use pg::{Actor, ActorKind, Db, Origin, Permit, Scope, WriteTx};

/// Billing on a database, in US dollars. Nothing in memory is shared with another one.
pub fn billing_start(db: &Db, policies: &Policies) -> Billing {
    let settings = Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new([7; 32]) };
    Billing::new(db.clone(), policies.clone(), settings)
}

/// The launch of one allocation of so many GPUs at a price by the hour, by nobody in particular.
pub fn launch_request(
    db: &Db,
    (org, project): (OrgId, ProjectId),
    unit_price_minor: i64,
    units: i32,
) -> Launch {
    Launch {
        org,
        project,
        person: None,
        sku: "h200".to_owned(),
        unit: MeterUnit::GpuHour,
        units,
        unit_price_minor,
        currency: "USD".to_owned(),
        allocations: vec![db.ambient().id()],
    }
}

/// Makes and moves money.
#[derive(Clone)]
pub struct TestMoney {
    pub billing: Billing,
    db: Db,
}

impl TestMoney {
    pub fn new(db: &Db) -> Self {
        Self { billing: billing_start(db, &Policies::new(db.clone())), db: db.clone() }
    }

    async fn write(&self, action: &'static str) -> WriteTx {
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        self.db.write(Permit::system("a test moves money", origin), action).await.expect("begin")
    }

    pub async fn post(&self, posting: Posting) -> Posted {
        let mut tx = self.write("ledger.post").await;
        let posted = post(&self.billing, &mut tx, posting).await.expect("post").expect("a new reference");
        tx.commit(None).await.expect("commit");
        posted
    }

    /// The organization pays in so much; a negative amount is taken from it.
    pub async fn fund(&self, org: OrgId, amount: i64) -> Balances {
        let (kind, other) = if amount > 0 {
            (PostingKind::Topup, Account::CashStripe)
        } else {
            (PostingKind::Correction, Account::Revenue)
        };
        let lines = vec![Line::new(Account::Prepaid, amount), Line::new(other, -amount)];
        let reason = "a test".to_owned();
        self.post(Posting { org, kind, reference: None, reason, corrects: None, lines }).await.balances
    }

    pub async fn balances(&self, org: OrgId) -> Balances {
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        let mut tx = self.db.read(&Permit::system("a test reads balances", origin)).await.expect("read");
        balances_of(&self.billing, tx.conn(), org).await.expect("balances").0
    }

    /// As an owner of the organization.
    async fn write_limit(&self, place: (OrgId, ProjectId), action: &'static str) -> WriteTx {
        let owner =
            Actor { kind: ActorKind::User, id: Some(self.db.ambient().uuid()), role: Role::OrgOwner.name() };
        let granted = Role::OrgOwner.permissions().authorize(Permission::BudgetManage);
        let scope = Scope::Project(place.0, place.1);
        let origin = Origin::internal(CorrelationId(self.db.ambient().uuid()));
        let permit = Permit::granted(owner, scope, origin, granted.expect("owners may"));
        self.db.write(permit, action).await.expect("begin")
    }

    /// The service account may spend so much in a month from now on.
    pub async fn spend_cap_set(&self, place: AccountPlace, amount_minor: i64) {
        let mut tx = self.write_limit((place.org, place.project), "spend_cap.set").await;
        spend_cap_set(&self.billing, &mut tx, place, amount_minor, None).await.expect("a cap");
        tx.commit(None).await.expect("commit");
    }

    /// The project has a budget from now on.
    pub async fn budget_set(&self, place: (OrgId, ProjectId), wanted: BudgetWanted) {
        let mut tx = self.write_limit(place, "budget.set").await;
        budget_set(&self.billing, &mut tx, place, wanted, None).await.expect("a budget");
        tx.commit(None).await.expect("commit");
    }

    /// The project has used so much, and its budget knows.
    pub async fn spend(&self, (org, project): (OrgId, ProjectId), amount: i64) {
        let used = Line { project: Some(project), ..Line::new(Account::Prepaid, -amount) };
        let lines = vec![used, Line::new(Account::Revenue, amount)];
        let reason = "a test".to_owned();
        let kind = PostingKind::Usage;
        self.post(Posting { org, kind, reference: None, reason, corrects: None, lines }).await;
        self.accrue().await;
    }

    /// Money is held for a launch.
    pub async fn hold(&self, launch: &Launch) -> Result<(), Failure> {
        let mut tx = self.write("allocation.create").await;
        match funds_hold(&self.billing, &mut tx, launch).await {
            Ok(()) => tx.commit(None).await.expect("commit"),
            Err(failure) => {
                tx.roll_back().await;
                return Err(failure);
            }
        };
        Ok(())
    }

    /// The same, and the machines are ready now.
    pub async fn launch(&self, launch: Launch) -> Result<Vec<AllocationId>, Failure> {
        self.hold(&launch).await?;
        let mut tx = self.write("meter.open").await;
        for allocation in &launch.allocations {
            meter_open(&mut tx, *allocation, self.db.ambient().now()).await.expect("open");
        }
        tx.commit(None).await.expect("commit");
        Ok(launch.allocations)
    }

    pub async fn launch_fail(&self, allocation: AllocationId) {
        let mut tx = self.write("launch.fail").await;
        launch_failed(&mut tx, allocation).await.expect("fail");
        tx.commit(None).await.expect("commit");
    }

    pub async fn meter_close(&self, allocation: AllocationId) {
        let mut tx = self.write("meter.close").await;
        meter_close(&mut tx, allocation, self.db.ambient().now()).await.expect("close");
        tx.commit(None).await.expect("commit");
    }

    /// A fault of the hardware, which is owed for; without an end it lasts, and the meter stands still.
    pub async fn fault(
        &self,
        allocation: AllocationId,
        since: DateTime<Utc>,
        until: Option<DateTime<Utc>>,
    ) -> FindingId {
        let finding = self.db.ambient().id();
        let mut tx = self.write("meter.credit").await;
        let fault = Fault { finding, code: "xid.79", part: "gpu", since, until, tenant_may_be_cause: false };
        credit(&self.billing, &mut tx, allocation, fault).await.expect("credit");
        tx.commit(None).await.expect("commit");
        finding
    }

    /// The fault is over: what stood still because of it runs again. Gives how many meters do.
    pub async fn fault_end(&self, finding: FindingId) -> usize {
        let mut tx = self.write("meter.credit_end").await;
        let resumed = credit_end(&mut tx, finding, self.db.ambient().now()).await.expect("end");
        tx.commit(None).await.expect("commit");
        resumed.len()
    }

    /// Accrues until nothing is due.
    pub async fn accrue(&self) {
        for _ in 0..1000 {
            if !tick(&self.billing).await.expect("accrue").more {
                return;
            }
        }
        panic!("there is always something to accrue");
    }
}
