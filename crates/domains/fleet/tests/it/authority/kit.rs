//! One installation: a database, a directory of keys, a clock, and as many replicas as wanted.

use std::{path::PathBuf, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use fleet::authority::{Signing, Trust, TrustSettings, model::authority::Authority, model::signer::Signer};
use kernel::{
    Code, CorrelationId, Failure, ManualClock, PageQuery, Secret,
    ids::{AuthorityId, NodeId, TaskId},
    text::Reason,
};
use node_proto::{SignedTask, Task};
use pg::{Db, Origin, Permit, ReadTx, WriteTx};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tempfile::TempDir;
use testkit::TestDb;
use trust::{
    peer::PeerRefusal,
    signer::{FileCustody, KeysetKey},
};
use uuid::Uuid;

pub const DOMAIN: &str = "gpuaas.test";

pub struct Kit {
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    home: TempDir,
}

impl Kit {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        Self { test, clock, home: tempfile::tempdir().unwrap() }
    }

    /// With a replica that made what must be there.
    pub async fn started() -> (Self, Trust) {
        let kit = Self::new().await;
        let trust = kit.trust();
        trust.ensure().await.unwrap();
        (kit, trust)
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.test.db.ambient().now()
    }

    pub fn directory(&self) -> PathBuf {
        self.home.path().join("task-signing")
    }

    fn settings(&self, master_key: u8, signing: Signing) -> TrustSettings {
        let master_key = Secret::new([master_key; 32]);
        TrustSettings { trust_domain: DOMAIN.to_owned(), master_key, signing }
    }

    pub fn custody(&self) -> Arc<FileCustody> {
        Arc::new(FileCustody::open(self.directory()).unwrap())
    }

    /// The first replica.
    pub fn trust(&self) -> Trust {
        Trust::new(self.test.db.clone(), self.settings(7, Signing::Custody(self.custody()))).unwrap()
    }

    pub fn other_db(&self) -> Db {
        Db::new(self.test.connect.clone(), 4, 4, self.test.db.ambient().clone())
    }

    /// Another one, with connections and memory of its own.
    pub fn replica(&self) -> Trust {
        self.replica_on(&self.other_db())
    }

    pub fn replica_on(&self, db: &Db) -> Trust {
        Trust::new(db.clone(), self.settings(7, Signing::Custody(self.custody()))).unwrap()
    }

    /// One that only checks.
    pub fn checker(&self, master_key: u8) -> Trust {
        let key = KeysetKey::load(self.directory().join("keyset.pub")).unwrap();
        Trust::new(self.other_db(), self.settings(master_key, Signing::Checks(key))).unwrap()
    }

    pub fn permit(&self) -> Permit {
        Permit::system("test", Origin::internal(CorrelationId(self.test.db.ambient().uuid())))
    }

    /// Ids sort by time, so it is a little later each time.
    pub async fn write(&self) -> WriteTx {
        self.clock.advance(TimeDelta::milliseconds(1));
        self.test.db.write(self.permit(), "test.rotate").await.unwrap()
    }

    pub async fn read(&self) -> ReadTx {
        self.test.db.read(&self.permit()).await.unwrap()
    }

    /// Time for every replica to look again.
    pub fn let_pass(&self) {
        self.clock.advance(TimeDelta::seconds(3));
    }

    pub async fn authorities(&self, trust: &Trust) -> Vec<Authority> {
        trust.authority_list(&mut self.read().await, &PageQuery::default()).await.unwrap().items
    }

    pub async fn signers(&self, trust: &Trust) -> Vec<Signer> {
        trust.signer_list(&mut self.read().await, &PageQuery::default()).await.unwrap().items
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.test.one(sql).await
    }

    /// Runs SQL as the superuser, past every trigger.
    pub async fn tamper(&self, sql: &str) {
        self.test.tamper(sql).await;
    }

    /// An enrolled node in service that believes `authorities` and has the list `keyset_serial`.
    pub async fn node(&self, authorities: &[AuthorityId], keyset_serial: u64) -> NodeId {
        let id: NodeId = self.test.db.ambient().id();
        self.test
            .sql(&format!(
                "INSERT INTO regions (code, name, created_at, updated_at) VALUES ('r1', 'R', now(), now()) ON CONFLICT DO NOTHING;
                 INSERT INTO nodes (id, hostname, region, state, state_changed_at, enrolled_at, created_at, updated_at)
                 VALUES ('{0}', 'h-{0}', 'r1', 'active', now(), now(), now(), now());
                 INSERT INTO node_contacts (node_id, first_seen_at, last_seen_at, agent_version, contract)
                 VALUES ('{0}', now(), now(), '1', '1.1')",
                id.uuid()
            ))
            .await;
        self.confirm(id, authorities, keyset_serial).await;
        id
    }

    /// What the node's next report says.
    pub async fn confirm(&self, node: NodeId, authorities: &[AuthorityId], keyset_serial: u64) {
        let ids: Vec<String> = authorities.iter().map(|id| id.uuid().to_string()).collect();
        let sql = format!(
            "UPDATE node_contacts SET authority_ids = '{{{}}}', keyset_serial = {keyset_serial} WHERE node_id = '{}'",
            ids.join(","),
            node.uuid()
        );
        self.test.sql(&sql).await;
    }

    pub fn node_id(&self) -> NodeId {
        self.test.db.ambient().id()
    }
}

pub fn csr() -> String {
    let key = KeyPair::generate().unwrap();
    CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap()
}

pub fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// What a gateway would think of that chain.
pub async fn judge(trust: &Trust, chain_pem: &str, at: DateTime<Utc>) -> Result<AuthorityId, PeerRefusal> {
    let verifier = trust.verifier().await.unwrap();
    verifier.verify(&chain(chain_pem), at).map(|peer| peer.authority_id)
}

pub fn task(kit: &Kit) -> Task {
    Task {
        task_id: kit.test.db.ambient().id::<TaskId>(),
        node_id: kit.node_id(),
        task_type: "diag.health_probe".to_owned(),
        params: serde_json::json!({}),
        attempt: 1,
        issued_at: kit.now(),
        expires_at: kit.now() + TimeDelta::minutes(5),
        correlation_id: Uuid::nil(),
        traceparent: None,
        signer_version: 0,
    }
}

pub async fn signed(kit: &Kit, trust: &Trust) -> SignedTask {
    trust.sign_task(task(kit)).await.unwrap()
}

pub fn reason() -> Reason {
    Reason::parse("the old one leaked").unwrap()
}

#[track_caller]
pub fn code<T>(result: Result<T, Failure>) -> Code {
    match result {
        Err(Failure::Problem(problem)) => problem.code,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}
