//! A database, a clock that is moved by hand, a provider that does as it is told, and an organization that pays.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use billing::api::Policies;
use billing::api::{Balances, Billing};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, CorrelationId, Failure, ManualClock, Permission, Role, Secret,
    ids::{OrgId, PaymentId, RefundId},
};
use payments::{
    Payments, Settings,
    model::{
        topup::Topup,
        webhook::sign,
        wire::{CheckoutSession, List, PaymentIntent, Refund},
    },
    provider::{Checkout, Disabled, Provider, ProviderError, Span},
    service::{checkouts, intake, processing, topups},
};
use pg::{Actor, ActorKind, Origin, Permit, Scope, WriteTx};
use serde_json::{Value, json};
use testkit::TestDb;
use tokio::sync::Semaphore;

pub const SECRET: &str = "whsec_one"; // secret-scan: allow
pub const NEXT_SECRET: &str = "whsec_two"; // secret-scan: allow

/// What the provider does when it is asked.
#[derive(Default)]
pub struct Desk {
    /// The next calls fail like this, each once.
    pub faults: Vec<ProviderError>,
    /// What checkouts look like when they are asked for.
    pub sessions: Vec<Value>,
    /// (intent, amount, our id) of refunds that were sent, each key once.
    pub refunds: Vec<(String, i64, RefundId)>,
    pub refund_status: &'static str,
    pub listed: Vec<(String, i64)>,
    pub listed_refunds: Vec<(String, i64)>,
    pub calls: usize,
    /// Refunds that are being sent wait here before the provider answers.
    pub door: Option<Arc<Door>>,
}

/// Where a call to the provider waits: the test sees that it has begun, and lets it go on.
pub struct Door {
    pub entered: Semaphore,
    pub go: Semaphore,
}

impl Default for Door {
    fn default() -> Self {
        Self { entered: Semaphore::new(0), go: Semaphore::new(0) }
    }
}

#[derive(Clone, Default)]
pub struct FakeProvider(pub Arc<Mutex<Desk>>);

impl FakeProvider {
    pub fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.0.lock().unwrap()
    }

    fn called(&self) -> Result<(), ProviderError> {
        let mut desk = self.desk();
        desk.calls += 1;
        if desk.faults.is_empty() { Ok(()) } else { Err(desk.faults.remove(0)) }
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn customer_create(&self, org: OrgId) -> Result<String, ProviderError> {
        self.called()?;
        Ok(format!("cus_{org}"))
    }

    async fn checkout_create(&self, checkout: Checkout<'_>) -> Result<CheckoutSession, ProviderError> {
        self.called()?;
        let session = json!({
            "id": format!("cs_{}", checkout.topup), "url": format!("https://pay.test/{}", checkout.topup), "status": "open",
            "payment_status": "unpaid", "metadata": { "topup_id": checkout.topup }, "amount_total": checkout.amount_minor,
            "currency": checkout.currency.to_lowercase(),
        });
        self.desk().sessions.push(session.clone());
        Ok(read(session))
    }

    async fn checkout_get(&self, id: &str) -> Result<CheckoutSession, ProviderError> {
        self.called()?;
        let found = self.desk().sessions.iter().find(|session| session["id"] == id).cloned();
        found.map(read).ok_or_else(|| ProviderError::Refused("404".to_owned()))
    }

    async fn checkout_expire(&self, id: &str) -> Result<CheckoutSession, ProviderError> {
        self.called()?;
        let mut desk = self.desk();
        let session = desk.sessions.iter_mut().find(|session| session["id"] == id).unwrap();
        if session["status"] != "open" {
            return Err(ProviderError::Refused("it is not open".to_owned()));
        }
        session["status"] = "expired".into();
        Ok(read(session.clone()))
    }

    async fn refund_create(&self, intent: &str, amount: i64, id: RefundId) -> Result<Refund, ProviderError> {
        let door = self.desk().door.clone();
        if let Some(door) = door {
            door.entered.add_permits(1);
            door.go.acquire().await.unwrap().forget();
        }
        // Done, and the answer lost: that is what the key is for.
        let mut desk = self.desk();
        if !desk.faults.iter().any(|fault| matches!(fault, ProviderError::Refused(_)))
            && !desk.refunds.iter().any(|(_, _, key)| *key == id)
        {
            desk.refunds.push((intent.to_owned(), amount, id));
        }
        let status = if desk.refund_status.is_empty() { "succeeded" } else { desk.refund_status };
        drop(desk);
        self.called()?;
        Ok(read(json!({
            "id": format!("re_{id}"), "amount": amount, "currency": "usd", "status": status, "payment_intent": intent,
            "metadata": { "refund_id": id },
        })))
    }

    async fn payments_list(&self, span: &Span) -> Result<List<PaymentIntent>, ProviderError> {
        self.called()?;
        // Two on a page, so that pages are turned.
        let listed = self.desk().listed.clone();
        let from =
            span.after.as_ref().map_or(0, |after| listed.iter().position(|(id, _)| id == after).unwrap() + 1);
        let page: Vec<Value> = listed[from..]
            .iter()
            .take(2)
            .map(|(id, amount)| json!({ "id": id, "amount_received": amount, "currency": "usd", "status": "succeeded" }))
            .collect();
        Ok(List { has_more: from + page.len() < listed.len(), data: page.into_iter().map(read).collect() })
    }

    async fn refunds_list(&self, _: &Span) -> Result<List<Refund>, ProviderError> {
        self.called()?;
        let listed = self.desk().listed_refunds.clone();
        let data = listed.iter().map(|(id, amount)| {
            read(json!({ "id": id, "amount": amount, "currency": "usd", "status": "succeeded" }))
        });
        Ok(List { has_more: false, data: data.collect() })
    }
}

pub struct Kit {
    pub payments: Payments,
    billing: Billing,
    pub provider: FakeProvider,
    pub test: TestDb,
    pub clock: Option<Arc<ManualClock>>,
    pub org: OrgId,
}

impl Kit {
    /// With a clock that stands still.
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        Self::with(ambient, Some(clock)).await
    }

    /// With the real one.
    pub async fn running() -> Self {
        Self::with(Ambient::system(), None).await
    }

    async fn with(ambient: Ambient, clock: Option<Arc<ManualClock>>) -> Self {
        let test = TestDb::create_with(ambient).await;
        let policies = Policies::new(test.db.clone());
        let settings =
            billing::Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new([7; 32]) };
        let billing = Billing::new(test.db.clone(), policies.clone(), settings);
        let provider = FakeProvider::default();
        let settings = Settings {
            webhook_secrets: vec![Secret::new(SECRET.to_owned()), Secret::new(NEXT_SECRET.to_owned())],
            public_url: "https://gpuaas.test".to_owned(),
        };
        let payments = Payments::new(
            test.db.clone(),
            billing.clone(),
            Arc::new(policies),
            Arc::new(provider.clone()),
            settings,
        );
        let org = test.db.ambient().id();
        Self { payments, billing, provider, test, clock, org }
    }

    /// The same platform as a replica has it on which the provider is not set up any more.
    pub fn without_provider(&self) -> Payments {
        let settings = Settings { webhook_secrets: Vec::new(), public_url: "https://gpuaas.test".to_owned() };
        let policies = Policies::new(self.test.db.clone());
        let billing = self.billing.clone();
        Payments::new(self.test.db.clone(), billing, Arc::new(policies), Arc::new(Disabled), settings)
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, time: TimeDelta) {
        self.clock.as_ref().unwrap().advance(time);
    }

    fn permit(&self, role: Role, permission: Permission, scope: Scope) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(self.org.uuid()), role: role.name() };
        let granted = role.permissions().authorize(permission).unwrap();
        let origin = Origin::internal(CorrelationId(self.test.db.ambient().uuid()));
        Permit::granted(actor, scope, origin, granted)
    }

    pub fn owner(&self) -> Permit {
        self.permit(Role::OrgOwner, Permission::BillingManage, Scope::Org(self.org))
    }

    pub fn admin(&self) -> Permit {
        self.permit(Role::PlatformAdmin, Permission::MoneyManage, Scope::Platform)
    }

    pub async fn write(&self, permit: Permit) -> WriteTx {
        self.test.db.write(permit, "test").await.unwrap()
    }

    pub async fn one<T: testkit::Scalar>(&self, sql: &str) -> T {
        self.test.one(sql).await
    }

    pub async fn balances(&self) -> Balances {
        let mut tx = self.test.db.read(&self.owner()).await.unwrap();
        let mut posted: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
            "SELECT prepaid_after, held_after, promo_after, disputed_after FROM ledger_postings ORDER BY seq DESC LIMIT 1",
        )
        .fetch_all(tx.conn())
        .await
        .unwrap();
        let last = posted.pop().unwrap_or_default();
        Balances { prepaid_minor: last.0, held_minor: last.1, promo_minor: last.2, disputed_minor: last.3 }
    }

    /// (free, frozen)
    pub async fn has(&self) -> (i64, i64) {
        let balances = self.balances().await;
        (balances.prepaid_minor, balances.disputed_minor)
    }

    pub async fn topup(&self, amount: i64) -> Result<Topup, Failure> {
        let mut tx = self.write(self.owner()).await;
        let topup = topups::create(&self.payments, &mut tx, self.org, amount).await?;
        tx.commit(None).await?;
        Ok(topup)
    }

    /// One that can be paid.
    pub async fn open(&self, amount: i64) -> Topup {
        let topup = self.topup(amount).await.unwrap();
        assert!(checkouts::advance_next(&self.payments).await.unwrap());
        self.topup_read(&topup).await
    }

    pub async fn topup_read(&self, topup: &Topup) -> Topup {
        let tx = self.test.db.read(&self.owner()).await.unwrap();
        topups::get(&self.payments, tx, self.org, topup.id, std::time::Duration::ZERO).await.unwrap()
    }

    pub async fn send(&self, body: &[u8]) -> Result<(), Failure> {
        intake::take(&self.payments, Some(&sign(SECRET, self.now().timestamp(), body)), body).await
    }

    /// Sends a message and processes whatever is due.
    pub async fn message_receive(&self, body: &[u8]) {
        self.send(body).await.unwrap();
        self.drain().await;
    }

    pub async fn drain(&self) {
        while processing::process_next(&self.payments).await.unwrap() {}
    }

    /// A payment that arrived.
    pub async fn paid(&self, amount: i64, intent: &str) -> PaymentId {
        let topup = self.open(amount).await;
        self.message_receive(&completed(&topup, intent, "evt_paid")).await;
        let id: uuid::Uuid = self.one(&format!("SELECT id FROM payments WHERE intent = '{intent}'")).await;
        PaymentId::from(id)
    }

    pub async fn states(&self, table: &str) -> Vec<String> {
        let sql = format!("SELECT coalesce(array_agg(state ORDER BY state), '{{}}') FROM {table}");
        self.one(&sql).await
    }
}

/// A message that a checkout was paid; its id is made of the event's and the payment's.
pub fn completed(topup: &Topup, intent: &str, event: &str) -> Vec<u8> {
    let session = json!({
        "id": topup.session_id.as_deref().unwrap_or("cs"), "status": "complete", "payment_status": "paid",
        "payment_intent": intent, "amount_total": topup.amount_minor, "currency": "usd",
        "client_reference_id": topup.id, "metadata": { "topup_id": topup.id },
    });
    message(&format!("{event}_{intent}"), "checkout.session.completed", session)
}

pub fn message(id: &str, kind: &str, object: Value) -> Vec<u8> {
    serde_json::to_vec_pretty(&json!({ "id": id, "type": kind, "data": { "object": object } })).unwrap()
}

pub fn dispute(id: &str, intent: &str, amount: i64, status: &str) -> Value {
    json!({ "id": id, "amount": amount, "currency": "usd", "status": status, "payment_intent": intent, "reason": "fraudulent" })
}
