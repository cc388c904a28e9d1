//! A database with an organization whose ledger has every kind of posting, and a clock that is moved by hand.

use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use billing::{
    Billing, Settings,
    api::{
        Account, Launch, Line, Posted, Posting, PostingKind, funds_hold, launch_failed, meter_close,
        meter_open, post,
    },
    service::{
        accrual::tick,
        chains::{LedgerVerification, chain_verify, chains_verify, ledger_export},
        checkpoints::checkpoints_sign,
    },
};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::TryStreamExt as _;
use identity::api::Policies;
use kernel::{
    CorrelationId, ManualClock, Permission, Role, Secret,
    ids::{AllocationId, OrgId, PostingId, ProjectId, UserId},
    ledger::{ExportFault, ExportVerifier, FaultReason, Verified},
};
use pg::{Actor, ActorKind, Origin, Permit, Scope};
use testkit::TestDb;
use testworld::{Tenant, Tenants};

pub struct Kit {
    pub billing: Billing,
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub org: OrgId,
    pub project: ProjectId,
    pub person: UserId,
}

pub const SEED: [u8; 32] = [9; 32];

impl Kit {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09.123456Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let Tenant { org, project, .. } = Tenants::new(&test.db).tenant("acme").await;
        let person = test.db.ambient().id();
        let billing = billing(&test, SEED);
        Self { billing, test, clock, org, project, person }
    }

    /// With every kind of posting, some made by people, and two checkpoints.
    pub async fn busy() -> Self {
        use Account::{CashStripe, CreditsGranted, Disputed, Prepaid, Promo, Refunds, Revenue};
        let kit = Self::new().await;
        kit.post(PostingKind::Topup, Some("pay_1"), &[(Prepaid, 100_000), (CashStripe, -100_000)]).await;
        kit.post(PostingKind::Promo, None, &[(Promo, 5_000), (CreditsGranted, -5_000)]).await;
        let allocations = kit.launch(3).await;
        kit.write("meter.open", async |tx| {
            meter_open(tx, allocations[0], kit.now()).await.unwrap();
            meter_open(tx, allocations[1], kit.now()).await.unwrap();
            launch_failed(tx, allocations[2]).await.unwrap();
        })
        .await;
        kit.pass(TimeDelta::minutes(90));
        tick(&kit.billing).await.unwrap();
        assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
        kit.pass(TimeDelta::days(1));
        let credit = kit.post(PostingKind::Credit, Some("ü€𝄞"), &[(Prepaid, 7), (CreditsGranted, -7)]).await;
        kit.post(PostingKind::Refund, Some("re_1"), &[(Prepaid, -1_000), (Refunds, 1_000)]).await;
        kit.post_correction(credit.id, &[(Prepaid, -7), (Revenue, 7)]).await;
        kit.post(PostingKind::Hold, Some("dp_1"), &[(Prepaid, -500), (Disputed, 500)]).await;
        kit.write("meter.close", async |tx| meter_close(tx, allocations[0], kit.now()).await.unwrap()).await;
        kit.pass(TimeDelta::minutes(2));
        tick(&kit.billing).await.unwrap();
        assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
        kit.post(PostingKind::Topup, Some("pay_2"), &[(Prepaid, 1), (CashStripe, -1)]).await;
        kit
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn pass(&self, time: TimeDelta) {
        self.clock.advance(time);
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    /// The right of a person with `role` in `scope`.
    pub fn permit(&self, role: Role, scope: Scope, permission: Permission) -> Permit {
        let actor = Actor { kind: ActorKind::User, id: Some(self.person.uuid()), role: role.name() };
        Permit::granted(actor, scope, self.origin(), role.permissions().authorize(permission).unwrap())
    }

    pub async fn write(&self, action: &'static str, work: impl AsyncFnOnce(&mut pg::WriteTx)) {
        let permit = Permit::system("a test writes", self.origin());
        let mut tx = self.test.db.write(permit, action).await.unwrap();
        work(&mut tx).await;
        tx.commit(None).await.unwrap();
    }

    pub fn posting(&self, kind: PostingKind, reference: Option<&str>, lines: &[(Account, i64)]) -> Posting {
        let lines = lines.iter().map(|(account, amount)| Line::new(*account, *amount)).collect();
        let (reference, reason) = (reference.map(str::to_owned), format!("a {} for a test", kind.name()));
        Posting { org: self.org, kind, reference, reason, corrects: None, lines }
    }

    /// A second later, by an administrator.
    pub async fn post(&self, kind: PostingKind, reference: Option<&str>, lines: &[(Account, i64)]) -> Posted {
        self.post_made(self.posting(kind, reference, lines)).await
    }

    async fn post_correction(&self, of: PostingId, lines: &[(Account, i64)]) -> Posted {
        let mut posting = self.posting(PostingKind::Correction, None, lines);
        posting.corrects = Some(of);
        posting.lines[0].project = Some(self.project);
        self.post_made(posting).await
    }

    async fn post_made(&self, posting: Posting) -> Posted {
        self.pass(TimeDelta::seconds(1));
        let permit = self.permit(Role::PlatformAdmin, Scope::Platform, Permission::MoneyManage);
        let mut tx = self.test.db.write(permit, "ledger.post").await.unwrap();
        let posted = post(&self.billing, &mut tx, posting).await.unwrap().unwrap();
        tx.commit(None).await.unwrap();
        posted
    }

    /// Sets money aside for so many machines, as a member of the project does.
    pub async fn launch(&self, count: usize) -> Vec<AllocationId> {
        self.pass(TimeDelta::seconds(1));
        let ambient = self.test.db.ambient();
        let launch = Launch {
            org: self.org,
            project: self.project,
            person: Some(self.person.uuid()),
            sku: "h200".to_owned(),
            unit: billing::api::MeterUnit::GpuHour,
            units: 3,
            unit_price_minor: 377,
            currency: "USD".to_owned(),
            allocations: (0..count).map(|_| ambient.id()).collect(),
        };
        let scope = Scope::Project(self.org, self.project);
        let permit = self.permit(Role::ProjectMember, scope, Permission::AllocationCreate);
        let mut tx = self.test.db.write(permit, "allocation.create").await.unwrap();
        funds_hold(&self.billing, &mut tx, &launch).await.unwrap();
        tx.commit(None).await.unwrap();
        launch.allocations
    }

    /// Runs SQL as the superuser, past every trigger; `$org` is the organization.
    pub async fn tamper(&self, sql: &str) {
        self.test.tamper(&self.named(sql)).await;
    }

    fn named(&self, sql: &str) -> String {
        sql.replace("$org", &format!("'{}'", self.org.uuid()))
    }

    pub async fn one<T: testkit::Scalar>(&self, sql: &str) -> T {
        self.test.one(&self.named(sql)).await
    }

    pub async fn export(&self) -> String {
        let chunks: Vec<bytes::Bytes> =
            ledger_export(self.billing.clone(), self.org).try_collect().await.unwrap();
        String::from_utf8(chunks.concat()).unwrap()
    }

    /// Checks the chain in every way there is, which must agree.
    pub async fn verify(&self) -> LedgerVerification {
        let one = chain_verify(&self.billing, self.org).await.unwrap();
        let all = chains_verify(&self.billing).await.unwrap();
        let of_org: Vec<_> = all.faults.into_iter().filter(|fault| fault.org_id == self.org).collect();
        assert_eq!(of_org, one.fault.clone().into_iter().collect::<Vec<_>>());
        let trusted: Vec<_> = one.keys.iter().map(|key| key.public_key.0.clone()).collect();
        let offline = verify_export(&self.export().await, &trusted);
        match &one.fault {
            // Only in the database.
            Some(fault) if fault.reason == FaultReason::ReferenceMissing => assert!(offline.is_ok()),
            Some(fault) => assert_eq!(offline, Err(ExportFault::Chain(fault.clone()))),
            None => {
                let offline = offline.unwrap();
                let found = (offline.postings, offline.lines, offline.checkpoints);
                assert_eq!(found, (one.postings, one.lines, one.checkpoints));
            }
        }
        one
    }
}

pub fn billing(test: &TestDb, seed: [u8; 32]) -> Billing {
    let settings = Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new(seed) };
    Billing::new(test.db.clone(), Policies::new(test.db.clone()), settings)
}

/// As somebody does who has nothing but the file and the keys.
pub fn verify_export(text: &str, trusted: &[Vec<u8>]) -> Result<Verified, ExportFault> {
    let verify = |key: &[u8], message: &[u8], signature: &[u8]| {
        trusted.iter().any(|trusted| trusted == key)
            && UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
    };
    let mut verifier = ExportVerifier::default();
    text.lines().try_for_each(|line| verifier.line(line, &verify))?;
    verifier.finish()
}
