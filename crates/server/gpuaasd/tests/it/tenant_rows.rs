//! Row-level security: the second line of defence, tried without the first, on a row of every tenant table that the
//! services of all domains made.

use std::sync::Arc;

use ::payments::{
    Payments,
    model::{webhook::sign, wire::CheckoutSession},
    provider::{Checkout, Provider, ProviderError},
    service::{checkouts, intake, processing, refunds, topups},
};
use async_trait::async_trait;
use billing::{
    model::{
        budget_resource::{BudgetAction, BudgetWanted},
        particulars::Seller,
    },
    service::{checkpoints::checkpoints_sign, spend_caps::AccountPlace, statement_numbers::statements_issue},
};
use capacity::{
    Billed,
    service::{access::grant_create, groups, launch::Creator, release::Asked},
    workflow::reimage::Installs,
};
use chrono::TimeDelta;
use endpoint::Caller;
use identity::{
    api::{InvitationLinks, MemberRole, Policies},
    service::{
        policies::{NewPolicy, Place, policy_set},
        service_accounts::{NewAccount, service_account_create, service_account_key_create},
    },
};
use kernel::{
    ManualClock, Permission, Role, Secret,
    ids::{AllocationId, OrgId, PaymentId, SessionId, UserId},
    policy::{PolicyKey as _, TerminalRecording, keys},
    principal::PrincipalId,
    text::{Name, Reason},
};
use notify::{
    api::{Notify, Settings},
    service::webhooks::{NewWebhook, webhook_create, webhook_test},
};
use pg::{Permit, Scope, WriteTx};
use serde_json::{Value, json};
use terminal::{
    RecordingStorage, Terminals,
    model::session::Access,
    service::{
        recordings::{Asked as AskedRecording, NewRecording, recording_open, view_create},
        tokens::{Wanted as TerminalWanted, token_create},
    },
};
use testcapacity::{InstantReimager, TestCapacity, wanted};
use testfleet::topology;
use testkit::TestDb;
use testmoney::{TestMoney, launch_request};
use testworld::{Tenant, Tenants};
use uuid::Uuid;

const WEBHOOK_SECRET: &str = "whsec_one"; // secret-scan: allow
const SLICE: &str = "h200-sxm-slice";

/// A payment provider that opens every checkout.
struct OpenCheckouts;

#[async_trait]
impl Provider for OpenCheckouts {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn customer_create(&self, org: OrgId) -> Result<String, ProviderError> {
        Ok(format!("cus_{org}"))
    }

    async fn checkout_create(&self, checkout: Checkout<'_>) -> Result<CheckoutSession, ProviderError> {
        let session = json!({
            "id": format!("cs_{}", checkout.topup), "url": "https://pay.test/", "status": "open",
            "payment_status": "unpaid", "metadata": { "topup_id": checkout.topup },
            "amount_total": checkout.amount_minor, "currency": "usd",
        });
        Ok(serde_json::from_value(session).unwrap())
    }
}

/// All domains on one database.
struct Installation {
    test: TestDb,
    clock: Arc<ManualClock>,
    tenants: Tenants,
    money: TestMoney,
    capacity: TestCapacity,
    payments: Payments,
    notify: Notify,
}

impl Installation {
    async fn start() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let test = TestDb::create_with(clock.ambient()).await;
        let (policies, money) = (Policies::new(test.db.clone()), TestMoney::new(&test.db));
        let parts = testcapacity::Parts {
            clock: Some(clock.clone()),
            policies: policies.clone(),
            money: Arc::new(Billed(money.billing.clone())),
            reimager: Arc::new(InstantReimager(Installs::Every)),
        };
        let capacity = TestCapacity::start(&test.db, parts).await;
        capacity.fleet.region("eu").await;
        capacity.fleet.node_active("eu", "gpu-1", &topology(8, 0)).await;
        let public_url = "https://gpuaas.test".to_owned();
        let settings = ::payments::Settings {
            webhook_secrets: vec![Secret::new(WEBHOOK_SECRET.to_owned())],
            public_url: public_url.clone(),
        };
        let payments = Payments::new(
            test.db.clone(),
            money.billing.clone(),
            Arc::new(policies.clone()),
            Arc::new(OpenCheckouts),
            settings,
        );
        let settings = Settings {
            smtp: None,
            invitation_links: InvitationLinks::new(&Secret::new([7; 32]), &public_url, true),
            public_url,
            private_webhooks: true,
            sealer: trust::Sealer::for_purpose(&Secret::new([7; 32]), b"webhooks").unwrap(),
        };
        let notify = Notify::new(test.db.clone(), policies, settings);
        Self { tenants: Tenants::new(&test.db), test, clock, money, capacity, payments, notify }
    }

    fn owner_permit(&self, owner: UserId, org: OrgId) -> Permit {
        self.tenants.permit(owner, Role::OrgOwner, Scope::Org(org), Permission::MemberManage)
    }

    async fn as_owner(&self, tenant: Tenant) -> WriteTx {
        self.test.db.write(self.owner_permit(tenant.owner, tenant.org), "test.furnish").await.unwrap()
    }

    /// An organization with a row in every tenant table, and its people.
    async fn furnished(&self, slug: &str) -> (Tenant, Vec<UserId>) {
        let tenant = self.tenants.tenant(slug).await;
        let colleague = self.tenants.member_of(tenant, &format!("colleague-of-{slug}")).await;
        self.tenants.ssh_key(tenant.owner, &format!("owner-{slug}")).await;
        self.tenants.ssh_key(colleague, &format!("colleague-{slug}")).await;
        self.tenants.invite(tenant.org, "guest@example.org", MemberRole::Member).await;
        self.settle_in(tenant).await;
        self.charge(tenant).await;
        self.allocate(tenant, colleague).await;
        self.pay(tenant, slug).await;
        (tenant, vec![tenant.owner, colleague])
    }

    async fn settle_in(&self, Tenant { org, project, owner }: Tenant) {
        let mut tx = self.as_owner(Tenant { org, project, owner }).await;
        let bot =
            service_account_create(&mut tx, org, project, NewAccount::reader(Name::parse("bot").unwrap()))
                .await
                .unwrap();
        let limit = keys::KEYS_PER_SERVICE_ACCOUNT.default_setting();
        service_account_key_create(&mut tx, (org, project), bot.id, None, limit).await.unwrap();
        let (four, admin) = (4.into(), &[Role::PlatformAdmin]);
        let quota = NewPolicy::bound(&four);
        policy_set(&mut tx, Place::Org(org), "quota.gpus_per_org", quota, None, admin).await.unwrap();
        let hook = NewWebhook {
            name: Name::parse("hook").unwrap(),
            url: "https://example.org".to_owned(),
            event_types: Vec::new(),
        };
        let (hook, _) = webhook_create(&self.notify, &mut tx, org, hook).await.unwrap();
        webhook_test(&self.notify, &mut tx, org, hook.id).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    async fn charge(&self, tenant: Tenant) {
        let Tenant { org, project, .. } = tenant;
        self.money.fund(org, 100_000).await;
        let account = self.tenants.launcher(tenant, "ci").await;
        self.money.spend_cap_set(AccountPlace { org, project, account }, 1000).await;
        let budget = BudgetWanted { amount_minor: 100, threshold_percent: 80, action: BudgetAction::Notify };
        self.money.budget_set((org, project), budget).await;
        let launch = launch_request(&self.test.db, (org, project), 400, 1);
        let machine = self.money.launch(launch).await.unwrap()[0];
        self.clock.advance(TimeDelta::minutes(10));
        self.money.accrue().await;
        self.money.fault(machine, self.test.db.ambient().now(), None).await;
        checkpoints_sign(&self.money.billing).await.unwrap();
    }

    async fn allocate(&self, Tenant { org, project, owner }: Tenant, colleague: UserId) {
        let creator = Creator::user(org, project, owner);
        let active = self.capacity.active(creator, wanted(SLICE, Some(1))).await.id;
        let mut tx = self.capacity.as_member(creator, "allocation.test").await;
        groups::create(&self.capacity.capacity, &mut tx, creator, wanted(SLICE, Some(1)), 2).await.unwrap();
        let asked = Asked { project, allocation: active, any: false, if_match: None };
        grant_create(&self.capacity.capacity, &mut tx, asked, owner, colleague).await.unwrap();
        tx.commit(None).await.unwrap();
        self.enter(creator, active).await;
    }

    /// A terminal, its recording, and somebody who looks at it.
    async fn enter(&self, creator: Creator, allocation: AllocationId) {
        let Creator { org, project, .. } = creator;
        let session = SessionId::from(self.test.db.ambient().uuid());
        let PrincipalId::User(id) = creator.principal else { unreachable!() };
        let caller = Caller::User { id, session, grants: Arc::default() };
        let dir = tempfile::tempdir().unwrap();
        let objects = objects::Objects::in_directory(dir.path().to_owned());
        let recordings = RecordingStorage::new(objects, &Secret::new([7; 32])).unwrap();
        let policies = Policies::new(self.test.db.clone());
        let terminals = Terminals::new(self.capacity.fleet.fleet.clone(), policies, recordings);
        let mut tx = self.capacity.as_member(creator, "allocation.test").await;
        let wanted = TerminalWanted { project, allocation, session: None, access: Access::Write };
        let session = token_create(&terminals, &mut tx, &caller, wanted).await.unwrap().session_id;
        tx.commit(None).await.unwrap();
        let started_at = self.test.db.ambient().now();
        let new = NewRecording {
            session,
            org,
            project,
            allocation,
            principal: caller.principal(),
            mode: TerminalRecording::Output,
            started_at,
            expires_at: started_at + TimeDelta::days(1),
        };
        recording_open(&terminals, &new).await.unwrap().unwrap();
        let mut tx = self.capacity.as_member(creator, "allocation.test").await;
        let asked = AskedRecording { project, allocation, session, caller: &caller, any: false };
        view_create(&terminals, &mut tx, &asked).await.unwrap();
        tx.commit(None).await.unwrap();
    }

    async fn pay(&self, tenant: Tenant, slug: &str) {
        let mut tx = self.as_owner(tenant).await;
        let topup = topups::create(&self.payments, &mut tx, tenant.org, 5000).await.unwrap().id;
        tx.commit(None).await.unwrap();
        assert!(checkouts::advance_next(&self.payments).await.unwrap());
        let intent = format!("pi_{slug}");
        let paid = json!({
            "id": format!("cs_{topup}"), "status": "complete", "payment_status": "paid", "payment_intent": intent,
            "amount_total": 5000, "currency": "usd", "client_reference_id": topup, "metadata": { "topup_id": topup },
        });
        self.provider_message_process(&format!("evt_paid_{slug}"), "checkout.session.completed", paid).await;
        let payment: Uuid =
            self.test.one(&format!("SELECT id FROM payments WHERE intent = '{intent}'")).await;
        let admin = self.test.db.ambient().id();
        let permit =
            self.tenants.permit(admin, Role::PlatformAdmin, Scope::Platform, Permission::MoneyManage);
        let mut tx = self.test.db.write(permit, "refund.create").await.unwrap();
        let reason = Reason::parse("the machine was broken").unwrap();
        refunds::create(&self.payments, &mut tx, PaymentId::from(payment), 1, &reason).await.unwrap();
        tx.commit(None).await.unwrap();
        let dispute = json!({
            "id": format!("dp_{slug}"), "amount": 1, "currency": "usd", "status": "needs_response",
            "payment_intent": intent, "reason": "fraudulent",
        });
        self.provider_message_process(&format!("evt_dispute_{slug}"), "charge.dispute.created", dispute)
            .await;
    }

    /// A message of the payment provider is taken and processed.
    async fn provider_message_process(&self, id: &str, kind: &str, object: Value) {
        let body = json!({ "id": id, "type": kind, "data": { "object": object } }).to_string();
        let at = self.test.db.ambient().now().timestamp();
        let signature = sign(WEBHOOK_SECRET, at, body.as_bytes());
        intake::take(&self.payments, Some(&signature), body.as_bytes()).await.unwrap();
        while processing::process_next(&self.payments).await.unwrap() {}
    }

    /// Tenant tables with the column that names the organization. Months of a table are reached through it.
    async fn tenant_tables(&self) -> Vec<(String, &'static str)> {
        let names: Vec<String> = self
            .test
            .one(
                "SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c WHERE c.relkind IN ('r', 'p')
                 AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
                 AND obj_description(c.oid, 'pg_class') LIKE 'tenant:%'",
            )
            .await;
        let column = |name: &str| if name == "organizations" { "id" } else { "org_id" };
        names.into_iter().map(|name| (name.clone(), column(&name))).collect()
    }
}

/// Where people see themselves in every organization that they belong to.
const OWN_MEMBERSHIPS: [&str; 2] = ["organizations", "tenant_memberships"];

#[tokio::test]
async fn a_query_without_a_tenant_filter_sees_only_its_own_organization() {
    let installation = Installation::start().await;
    let furnished = [installation.furnished("a").await, installation.furnished("b").await];
    // Statements have numbers when their month has ended.
    installation.clock.advance(chrono::TimeDelta::days(40));
    let seller = Seller { name: "Example Cloud".to_owned(), address: Vec::new(), tax_id: None, email: None };
    let selling = installation.money.billing.clone().with_seller(Some(seller), None);
    assert!(statements_issue(&selling).await.unwrap() >= 2);
    let tables = installation.tenant_tables().await;
    assert!(tables.len() >= 30, "{tables:?}");
    for (tenant, people) in furnished {
        let permit = installation.owner_permit(tenant.owner, tenant.org);
        // Whoever signs in has an organization of their own, and sees that they are in it from everywhere.
        let personal = "SELECT o.id FROM organizations o JOIN tenant_memberships m ON m.org_id = o.id";
        let owner = tenant.owner.uuid();
        let personal: Uuid = installation
            .test
            .one(&format!("{personal} WHERE o.kind = 'personal' AND m.user_id = '{owner}'"))
            .await;
        for (table, column) in &tables {
            let sql = format!("SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL");
            let mut read = installation.test.db.read(&permit).await.unwrap();
            let mut seen: Vec<Uuid> =
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql.clone())).fetch_all(read.conn()).await.unwrap();
            if OWN_MEMBERSHIPS.contains(&table.as_str()) {
                seen.retain(|org| *org != personal);
            }
            assert_eq!(seen, [tenant.org.uuid()], "{sql}");
        }
        let mut read = installation.test.db.read(&permit).await.unwrap();
        let mut seen: Vec<Uuid> =
            sqlx::query_scalar("SELECT id FROM users").fetch_all(read.conn()).await.unwrap();
        let mut members: Vec<Uuid> = people.iter().map(|user| user.uuid()).collect();
        seen.sort_unstable();
        members.sort_unstable();
        assert_eq!(seen, members, "only members of the organization");
    }
}
