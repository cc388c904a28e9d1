//! A control plane of a few lines, in this process: it speaks the node contract over real TLS, keeps tasks in
//! memory, and hands out again what a node does not hold. It checks nothing that is not about the simulator.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bytes::Bytes;
use chrono::TimeDelta;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::{
    Ambient,
    digest::sha256,
    hex::Hex,
    ids::{AuthorityId, NodeId, TaskId},
};
use node_proto::{
    Keyset, SignedKeyset, SignedTask, SignerKey, SignerState, Task, TaskKind, canonical,
    contract::{
        CONTRACT, CONTRACT_HEADER, Ending, EnrollRequest, Enrolled, HeartbeatAnswer, Inventory,
        IssuedCertificate, JoinInfo, LogsTaken, ProgressAnswer, RenewRequest, Renewed, ResultAnswer,
        TIME_HEADER, TaskResult, Trust, TrustedAuthority, Waited, spiffe_id,
    },
    keyset, task,
    text::Base64,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType,
};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify};
use tokio_rustls::TlsAcceptor;

const LEASE: Duration = Duration::from_millis(300);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    ambient: Ambient,
    authority: AuthorityId,
    root_pem: String,
    root_sha256: String,
    issuer: Issuer<'static, KeyPair>,
    keyset_key: Ed25519KeyPair,
    signer: Ed25519KeyPair,
    keyset: SignedKeyset,
    seen: Mutex<Seen>,
    queued: Notify,
}

#[derive(Default)]
struct Seen {
    /// Used tokens: each is good once.
    tokens: Vec<String>,
    enrolled: HashMap<NodeId, u32>,
    tasks: HashMap<TaskId, Handed>,
    heartbeats: HashMap<NodeId, u32>,
    inventories: HashMap<NodeId, Inventory>,
}

struct Handed {
    node: NodeId,
    signed: SignedTask,
    lease: Option<Instant>,
    deliveries: u32,
    started: bool,
    results: Vec<TaskResult>,
}

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::generate().unwrap()
}

impl Gateway {
    pub async fn start() -> Self {
        let ambient = Ambient::system();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let server_key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let server = server.signed_by(&server_key, &issuer).unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![server.der().clone(), root.der().clone()],
                PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];

        let (keyset_key, signer) = (key(), key());
        let keyset = Keyset {
            serial: 1,
            issued_at: ambient.now(),
            signers: vec![SignerKey {
                signer_version: 1,
                state: SignerState::Active,
                public_key: Base64(signer.public_key().as_ref().to_vec()),
            }],
        };
        let document = canonical::encode(&keyset).unwrap();
        let signature = keyset_key.sign(&keyset::signing_bytes(&document)).as_ref().to_vec();
        let shared = Arc::new(Shared {
            authority: ambient.id(),
            root_pem: root.pem(),
            root_sha256: Hex(sha256(root.der()).to_vec()).to_string(),
            issuer,
            keyset_key,
            signer,
            keyset: SignedKeyset { document: Base64(document), signature: Base64(signature) },
            seen: Mutex::default(),
            queued: Notify::new(),
            ambient,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), shared.clone()));
        Self { address, shared }
    }

    /// One entry of the list of nodes, with a token that is good once.
    pub fn entry(&self, number: usize, profile: &str) -> (NodeId, Value) {
        let node: NodeId = self.shared.ambient.id();
        let join = JoinInfo {
            node_id: node,
            hostname: format!("sim-{profile}-{number}"),
            url: format!("https://{}", self.address),
            root_sha256: vec![self.shared.root_sha256.clone()],
            keyset_key: Hex(self.shared.keyset_key.public_key().as_ref().to_vec()).to_string(),
        };
        let token = format!("token-{number}-{}", self.shared.ambient.uuid());
        (node, json!({ "join": join, "token": token, "profile": profile }))
    }

    pub fn queue<K: TaskKind>(&self, node: NodeId, input: &K::Input) -> TaskId {
        let now = self.shared.ambient.now();
        let id = self.shared.ambient.id();
        let task = Task {
            task_id: id,
            node_id: node,
            task_type: K::TYPE.name().to_owned(),
            params: serde_json::to_value(input).unwrap(),
            attempt: 1,
            issued_at: now,
            expires_at: now + TimeDelta::minutes(10),
            correlation_id: self.shared.ambient.uuid(),
            traceparent: None,
            signer_version: 1,
        };
        let payload = task.canonical().unwrap();
        let signature = self.shared.signer.sign(&task::signing_bytes(&payload)).as_ref().to_vec();
        let signed = SignedTask { payload: Base64(payload), signer_version: 1, signature: Base64(signature) };
        let handed = Handed { node, signed, lease: None, deliveries: 0, started: false, results: Vec::new() };
        self.shared.seen.lock().unwrap().tasks.insert(id, handed);
        self.shared.queued.notify_waiters();
        id
    }

    /// Every result that was told for a task, in order.
    pub fn results(&self, id: TaskId) -> Vec<TaskResult> {
        self.shared.seen.lock().unwrap().tasks[&id].results.clone()
    }

    pub fn ending(&self, id: TaskId) -> Option<Ending> {
        self.results(id).into_iter().next().map(|result| result.ending)
    }

    pub fn deliveries(&self) -> u32 {
        self.shared.seen.lock().unwrap().tasks.values().map(|task| task.deliveries).sum()
    }

    pub fn enrolments(&self, node: NodeId) -> u32 {
        self.shared.seen.lock().unwrap().enrolled.get(&node).copied().unwrap_or(0)
    }

    pub fn heartbeats(&self, node: NodeId) -> u32 {
        self.shared.seen.lock().unwrap().heartbeats.get(&node).copied().unwrap_or(0)
    }
}

impl Gateway {
    /// Whether the node has told that it began the task.
    pub fn begun(&self, id: TaskId) -> bool {
        self.shared.seen.lock().unwrap().tasks[&id].started
    }

    /// As the node reported it last.
    pub fn inventory(&self, node: NodeId) -> Inventory {
        self.shared.seen.lock().unwrap().inventories.get(&node).cloned().unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            stream.set_nodelay(true).unwrap();
            let Ok(stream) = tls.accept(stream).await else { return };
            let certified = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, std::convert::Infallible>(shared.answer(request, certified).await) }
            });
            let _ = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>, certified: bool) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let path: Vec<&str> = head.uri.path().split('/').skip(4).collect();
        let answer = match path[..] {
            ["enroll"] => self.enroll(&body),
            [node, ref rest @ ..] if certified => match node.parse() {
                Ok(node) => self.known(node, rest, head.uri.query().unwrap_or(""), &body).await,
                Err(_) => Err(StatusCode::FORBIDDEN),
            },
            _ => Err(StatusCode::UNAUTHORIZED),
        };
        let (status, body) = match answer {
            Ok(body) => (StatusCode::OK, body),
            Err(status) => (status, json!({ "error": { "code": "refused", "message": "no" } })),
        };
        Response::builder()
            .status(status)
            .header(CONTRACT_HEADER, CONTRACT)
            .header(TIME_HEADER, self.ambient.now().timestamp_millis())
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap()
    }

    fn certificate(&self, node: NodeId, csr_pem: &str) -> IssuedCertificate {
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let uri = spiffe_id("sim.test", node);
        csr.params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (from, days) = (self.ambient.now() - TimeDelta::hours(1), TimeDelta::days(1));
        let day = |at: chrono::DateTime<chrono::Utc>| {
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(at.timestamp()).unwrap())
        };
        (csr.params.not_before, csr.params.not_after) = (day(from), day(from + days));
        let certificate = csr.signed_by(&self.issuer).unwrap();
        let chain_pem = format!("{}{}", certificate.pem(), self.root_pem);
        IssuedCertificate { chain_pem, not_before: from, not_after: from + days }
    }

    fn trust(&self) -> Trust {
        let authority = TrustedAuthority { id: self.authority, root_pem: self.root_pem.clone() };
        Trust { authorities: vec![authority], keyset: self.keyset.clone() }
    }

    fn enroll(&self, body: &[u8]) -> Result<Value, StatusCode> {
        let request: EnrollRequest = read(body)?;
        let mut seen = self.seen.lock().unwrap();
        if seen.tokens.contains(&request.token) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        seen.tokens.push(request.token);
        *seen.enrolled.entry(request.node_id).or_default() += 1;
        write(Enrolled {
            node_id: request.node_id,
            certificate: self.certificate(request.node_id, &request.csr_pem),
            trust: self.trust(),
            heartbeat_seconds: 1,
        })
    }

    async fn known(
        &self,
        node: NodeId,
        rest: &[&str],
        query: &str,
        body: &[u8],
    ) -> Result<Value, StatusCode> {
        match rest {
            ["cert", "renew"] => {
                let request: RenewRequest = read(body)?;
                write(Renewed { certificate: self.certificate(node, &request.csr_pem), trust: self.trust() })
            }
            ["trust"] => write(self.trust()),
            ["tasks", "wait"] => self.wait(node, query).await,
            ["tasks", id, "progress"] => {
                self.with_task(node, id, |task| task.started = true)?;
                write(ProgressAnswer { cancelled: false })
            }
            ["tasks", id, "result"] => {
                let result: TaskResult = read(body)?;
                let first = self.with_task(node, id, |task| {
                    task.results.push(result);
                    task.results.len() == 1
                })?;
                write(ResultAnswer { counted: first })
            }
            ["heartbeat"] => {
                let heartbeat: node_proto::contract::Heartbeat = read(body)?;
                let mut seen = self.seen.lock().unwrap();
                *seen.heartbeats.entry(node).or_default() += 1;
                seen.inventories.insert(node, heartbeat.inventory);
                drop(seen);
                write(HeartbeatAnswer {
                    renew_now: None,
                    heartbeat_seconds: 1,
                    desired_version: 0,
                    keyset_serial: Some(1),
                    authority_ids: Some(vec![self.authority]),
                })
            }
            ["logs"] => write(LogsTaken { lines: 0 }),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }

    fn with_task<T>(
        &self,
        node: NodeId,
        id: &str,
        change: impl FnOnce(&mut Handed) -> T,
    ) -> Result<T, StatusCode> {
        let id: TaskId = id.parse().map_err(|_| StatusCode::NOT_FOUND)?;
        let mut seen = self.seen.lock().unwrap();
        let task = seen.tasks.get_mut(&id).filter(|task| task.node == node);
        task.map(change).ok_or(StatusCode::NOT_FOUND)
    }

    async fn wait(&self, node: NodeId, query: &str) -> Result<Value, StatusCode> {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let queued = self.queued.notified();
            let tasks = self.claim(node, query);
            if !tasks.is_empty() || Instant::now() >= deadline {
                return write(Waited { tasks, renew_now: None, dial: None });
            }
            // Leases lapse without a word.
            let _ = tokio::time::timeout(LEASE, queued).await;
        }
    }

    fn claim(&self, node: NodeId, query: &str) -> Vec<SignedTask> {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap();
        let free = seen.tasks.iter_mut().filter(|(id, task)| {
            task.node == node
                && task.results.is_empty()
                && !task.started
                && task.lease.is_none_or(|until| until < now)
                && !query.contains(&id.to_string())
        });
        free.take(4)
            .map(|(_, task)| {
                task.lease = Some(now + LEASE);
                task.deliveries += 1;
                task.signed.clone()
            })
            .collect()
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, StatusCode> {
    serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)
}

fn write<T: serde::Serialize>(value: T) -> Result<Value, StatusCode> {
    serde_json::to_value(value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
