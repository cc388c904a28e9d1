//! An agent of 1.1. It says what it holds, which trust it has and how far its clock is off, makes a new key when it is
//! told to, keeps a key whose certificate it has not got yet, hands over log lines and fetches programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicI64, Ordering},
};

use chrono::{DateTime, Utc};
use http::Method;
use kernel::Ambient;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    messages::{
        DrainInput, Ending, EnrollRequest, Enrolled, FailureCause, FailureCode, HealthProbeInput, Heartbeat,
        HeartbeatAnswer, Inventory, Isolation, IssuedCertificate, JoinInfo, Keyset, LogBatch, LogLevel,
        LogLine, LogsTaken, NodeMetrics, Phase, Progress, ProgressAnswer, ProvisionUserInput, RefusalReason,
        RenewRequest, Renewed, ResultAnswer, SelfUpdateInput, SignedTask, TaskFailure, TaskResult,
        TopologyDiscoverInput, Trust, WaitQuery, Waited,
    },
    tls::{Answer, call, sha256, tls, unhex},
};

pub const VERSION: &str = "1.1.0";
/// What it says of its machine: two GPUs, all well.
const TOPOLOGY: &str = include_str!("../messages/topology.json");
const HEALTH_REPORT: &str = include_str!("../messages/health_report.json");

/// The control plane said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub code: String,
    pub message: String,
}

struct Key {
    key_pem: String,
    csr_pem: String,
}

/// The kinds of work that it knows. It makes up what they do.
enum Work {
    Discover,
    Probe(HealthProbeInput),
    Drain,
    Provision(ProvisionUserInput),
    Update(SelfUpdateInput),
}

impl Work {
    fn read(task_type: &str, params: Value) -> Result<Self, RefusalReason> {
        fn input<T: DeserializeOwned>(params: Value) -> Result<T, RefusalReason> {
            serde_json::from_value(params).map_err(|_| RefusalReason::BadParameters)
        }
        Ok(match task_type {
            "slice.topology_discover" => {
                input::<TopologyDiscoverInput>(params)?;
                Self::Discover
            }
            "diag.health_probe" => Self::Probe(input(params)?),
            "node.drain" => {
                input::<DrainInput>(params)?;
                Self::Drain
            }
            "node.self_update" => Self::Update(input(params)?),
            "allocation.provision_user" => {
                let asked: ProvisionUserInput = input(params)?;
                // Root only where the machine is installed anew afterwards.
                if asked.sudo != (asked.isolation == Some(Isolation::FullReimage)) {
                    return Err(RefusalReason::BadParameters);
                }
                Self::Provision(asked)
            }
            _ => return Err(RefusalReason::UnknownType),
        })
    }
}

pub struct Agent {
    pub join: JoinInfo,
    pub certificate: IssuedCertificate,
    pub keyset: Keyset,
    pub authority_ids: Vec<String>,
    /// What was taken and is not told to its end.
    pub holding: BTreeSet<String>,
    /// What was done, and how it ended: what comes again is told again and not done again.
    pub done: BTreeMap<String, TaskResult>,
    pub drained: bool,
    pub key_pem: String,
    /// Another one after an update.
    pub version: String,
    /// The key of a renewal whose answer has not come.
    pending: Option<Key>,
    roots: Vec<String>,
    /// When its journal began: what was issued before may have been done and forgotten.
    since: DateTime<Utc>,
    clock_offset_ms: AtomicI64,
    ambient: Ambient,
}

impl Agent {
    pub async fn enroll(join: JoinInfo, token: &str) -> Result<Self, Refused> {
        let ambient = Ambient::system();
        let since = ambient.now();
        let key = Key::generate();
        let request = EnrollRequest {
            node_id: join.node_id.clone(),
            token: token.to_owned(),
            csr_pem: key.csr_pem,
            hostname: join.hostname.clone(),
            agent_version: VERSION.to_owned(),
            machine_id: "1.1".to_owned(),
        };
        let tls = tls(&join.root_sha256, None);
        let answer =
            call(&join.url, tls, Method::POST, "/internal/v1/nodes/enroll", written(&request)).await?;
        let clock_offset_ms = AtomicI64::new(ambient.now().timestamp_millis() - answer.time_ms);
        let answer: Enrolled = read(&answer);
        assert_eq!(answer.node_id, join.node_id);
        let keyset = answer.trust.keyset.open(&unhex(&join.keyset_key), 0).expect("a list by the pinned key");
        let roots = roots(&answer.trust);
        assert!(roots.iter().any(|root| join.root_sha256.contains(root)), "a pinned root is in force");
        Ok(Self {
            join,
            certificate: answer.certificate,
            keyset,
            authority_ids: authority_ids(&answer.trust),
            holding: BTreeSet::new(),
            done: BTreeMap::new(),
            drained: false,
            key_pem: key.key_pem,
            version: VERSION.to_owned(),
            pending: None,
            roots,
            since,
            clock_offset_ms,
            ambient,
        })
    }

    /// A new key and certificate, and the trust in force.
    pub async fn renew(&mut self) -> Result<(), Refused> {
        let renewed = self.renewed().await?;
        self.believe(&renewed.trust);
        let key = self.pending.take().expect("the key that was asked with");
        (self.key_pem, self.certificate) = (key.key_pem, renewed.certificate);
        Ok(())
    }

    /// The answer to a renewal, of which nothing is kept but the key: as if it had been lost on the way.
    pub async fn renewed(&mut self) -> Result<Renewed, Refused> {
        let csr_pem = self.pending.get_or_insert_with(Key::generate).csr_pem.clone();
        let renewed = self.post("cert/renew", &RenewRequest { csr_pem }).await;
        if matches!(&renewed, Err(Refused { status: 400 | 422, .. })) {
            // This key is not taken: the next attempt makes another.
            self.pending = None;
        }
        renewed
    }

    pub async fn wait(&self, seconds: u32) -> Result<Waited, Refused> {
        let holding = self.holding.iter().cloned().collect::<Vec<_>>().join(",");
        let query = WaitQuery { seconds: Some(seconds), room: Some(4), holding: Some(holding) };
        let query = serde_urlencoded::to_string(query).expect("a query");
        self.get(&format!("tasks/wait?{query}")).await
    }

    /// Waits for work, does it and tells of it; gives how much there was. Makes a new key if it is told to.
    pub async fn work(&mut self, seconds: u32) -> Result<usize, Refused> {
        let Waited { tasks, renew_now } = self.wait(seconds).await?;
        if renew_now == Some(true) {
            self.renew().await?;
        }
        for signed in &tasks {
            self.follow(signed).await?;
        }
        Ok(tasks.len())
    }

    pub async fn follow(&mut self, signed: &SignedTask) -> Result<ResultAnswer, Refused> {
        let named: Value = serde_json::from_slice(&signed.payload.0).expect("a task");
        let id = named["task_id"].as_str().expect("an id").to_owned();
        self.holding.insert(id.clone());
        if !self.done.contains_key(&id) {
            let result = match self.accept(signed).await? {
                Ok(work) => {
                    let (name, started_at) = ("work".to_owned(), self.ambient.now());
                    let phases = vec![Phase { name, started_at, duration_ms: Some(1) }];
                    let progress = Progress { phases: phases.clone() };
                    self.post::<ProgressAnswer>(&format!("tasks/{id}/progress"), &progress).await?;
                    TaskResult { ending: self.run(work).await?, phases }
                }
                Err(reason) => TaskResult { ending: Ending::Refused { reason }, phases: Vec::new() },
            };
            self.done.insert(id.clone(), result);
        }
        let answer = self.post(&format!("tasks/{id}/result"), &self.done[&id]).await?;
        self.holding.remove(&id);
        Ok(answer)
    }

    /// The work, if the task may be done. A signer that is not known may have come since.
    async fn accept(&mut self, signed: &SignedTask) -> Result<Result<Work, RefusalReason>, Refused> {
        let check = |agent: &Self| {
            signed.accept(&agent.keyset, &agent.join.node_id, agent.ambient.now(), agent.since)
        };
        let mut checked = check(self);
        if checked == Err(RefusalReason::UnknownSigner) {
            self.refresh_trust().await?;
            checked = check(self);
        }
        Ok(checked.and_then(|task| Work::read(&task.task_type, task.params)))
    }

    async fn run(&mut self, work: Work) -> Result<Ending, Refused> {
        let made_up = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let output = match work {
            Work::Discover => {
                let mut topology = made_up(TOPOLOGY);
                topology["hostname"] = json!(self.join.hostname);
                topology
            }
            Work::Probe(asked) => {
                let mut report = made_up(HEALTH_REPORT);
                report["profile"] = json!(asked.profile);
                report
            }
            Work::Drain => {
                self.drained = true;
                json!({ "drained": true })
            }
            Work::Provision(_) if self.drained => {
                let cause = Some(FailureCause::Drained);
                return Ok(failed(FailureCode::Unavailable, "the node is drained", cause));
            }
            Work::Provision(ProvisionUserInput { account, authorized_keys, .. }) => json!({
                "username": account.username, "uid": account.uid, "gid": account.gid,
                "home": format!("/home/{}", account.username), "keys": authorized_keys.len(), "created": true,
            }),
            Work::Update(asked) => {
                let program =
                    self.ask(Method::GET, &format!("programs/{}", asked.sha256), Vec::new()).await?.body;
                if sha256(&program) != asked.sha256 || u64::try_from(program.len()) != Ok(asked.size_bytes) {
                    return Ok(failed(FailureCode::Driver, "it is another program", None));
                }
                let from = std::mem::replace(&mut self.version, asked.version);
                json!({ "from_version": from, "to_version": self.version, "rolled_back": false })
            }
        };
        Ok(Ending::Succeeded { output })
    }

    /// Reports. Asks for the trust in force when it has another, and makes a new key if it is told to.
    pub async fn heartbeat(&mut self) -> Result<HeartbeatAnswer, Refused> {
        let heartbeat = Heartbeat {
            agent_version: self.version.clone(),
            certificate_expires_at: self.certificate.not_after,
            applied_version: 0,
            boot_id: "b0070000-0000-4000-8000-000000000001".to_owned(),
            inventory: Inventory { drained: self.drained, ..Inventory::default() },
            findings: Vec::new(),
            metrics: NodeMetrics::default(),
            keyset_serial: Some(self.keyset.serial),
            authority_ids: Some(self.authority_ids.clone()),
            clock_offset_ms: Some(self.clock_offset_ms.load(Ordering::Relaxed)),
        };
        let answer: HeartbeatAnswer = self.post("heartbeat", &heartbeat).await?;
        let mut told = answer.authority_ids.clone();
        told.iter_mut().for_each(|ids| ids.sort_unstable());
        let as_told = answer.keyset_serial.is_none_or(|serial| serial == self.keyset.serial)
            && told.is_none_or(|ids| ids == self.authority_ids);
        if !as_told {
            self.refresh_trust().await?;
        }
        if answer.renew_now == Some(true) {
            self.renew().await?;
        }
        Ok(answer)
    }

    pub async fn log(&self, message: &str) -> Result<LogsTaken, Refused> {
        let (at, source, message) = (self.ambient.now(), "session".to_owned(), message.to_owned());
        let lines = vec![LogLine { at, level: LogLevel::Info, source, message }];
        self.post("logs", &LogBatch { lines, dropped: 0 }).await
    }

    async fn refresh_trust(&mut self) -> Result<(), Refused> {
        let trust = self.get("trust").await?;
        self.believe(&trust);
        Ok(())
    }

    fn believe(&mut self, trust: &Trust) {
        let keyset = trust.keyset.open(&unhex(&self.join.keyset_key), self.keyset.serial);
        self.keyset = keyset.expect("a newer list by the pinned key");
        (self.roots, self.authority_ids) = (roots(trust), authority_ids(trust));
    }

    async fn post<T: DeserializeOwned>(&self, rest: &str, body: &impl Serialize) -> Result<T, Refused> {
        Ok(read(&self.ask(Method::POST, rest, written(body)).await?))
    }

    async fn get<T: DeserializeOwned>(&self, rest: &str) -> Result<T, Refused> {
        Ok(read(&self.ask(Method::GET, rest, Vec::new()).await?))
    }

    async fn ask(&self, method: Method, rest: &str, body: Vec<u8>) -> Result<Answer, Refused> {
        let path = format!("/internal/v1/nodes/{}/{rest}", self.join.node_id);
        let tls = tls(&self.roots, Some((&self.certificate.chain_pem, &self.key_pem)));
        let answer = call(&self.join.url, tls, method, &path, body).await?;
        let offset = self.ambient.now().timestamp_millis() - answer.time_ms;
        self.clock_offset_ms.store(offset, Ordering::Relaxed);
        Ok(answer)
    }
}

impl Key {
    fn generate() -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let csr = rcgen::CertificateParams::default().serialize_request(&key).and_then(|csr| csr.pem());
        Self { key_pem: key.serialize_pem(), csr_pem: csr.expect("a request") }
    }
}

fn failed(code: FailureCode, message: &str, cause: Option<FailureCause>) -> Ending {
    Ending::Failed { failure: TaskFailure { code, message: message.to_owned(), cause } }
}

fn written(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("JSON")
}

fn read<T: DeserializeOwned>(answer: &Answer) -> T {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {:?}", answer.body))
}

fn roots(trust: &Trust) -> Vec<String> {
    let der = |pem: &String| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a root");
    trust.authorities.iter().map(|authority| sha256(&der(&authority.root_pem))).collect()
}

fn authority_ids(trust: &Trust) -> Vec<String> {
    let mut ids: Vec<_> = trust.authorities.iter().map(|authority| authority.id.clone()).collect();
    ids.sort_unstable();
    ids
}
