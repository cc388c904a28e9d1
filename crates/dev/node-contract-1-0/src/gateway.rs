//! A gateway of 1.0, in this process: mutual TLS with a small authority of its own, tasks in memory.
//!
//! It hands out every task once, never again by itself, and has no routes for logs and programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::Ambient;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType,
};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::Notify,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    CONTRACT, CONTRACT_HEADER, TIME_HEADER,
    agent::{hex, sha256},
    messages::{
        Base64, EnrollRequest, Enrolled, ErrorAnswer, ErrorBody, Heartbeat, HeartbeatAnswer,
        IssuedCertificate, JoinInfo, Keyset, Progress, ProgressAnswer, RenewRequest, Renewed, ResultAnswer,
        SignedKeyset, SignedTask, SignerKey, SignerState, Task, TaskResult, Trust, TrustedAuthority,
        WaitQuery, Waited,
    },
};

pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What nodes did here.
#[derive(Default)]
pub struct Seen {
    pub connections: u32,
    pub renewals: u32,
    pub trust_asked: u32,
    pub heartbeats: Vec<Heartbeat>,
    pub tasks: BTreeMap<String, Handed>,
    /// By the header; what the other side says it speaks.
    pub contracts: BTreeSet<String>,
    /// Paths that 1.0 did not have, without the node's id.
    pub unknown_paths: Vec<String>,
    tokens: BTreeMap<String, String>,
}

pub struct Handed {
    pub node: String,
    pub signed: SignedTask,
    pub waiting: bool,
    pub deliveries: u32,
    pub progress: Vec<Progress>,
    pub results: Vec<TaskResult>,
}

struct Shared {
    ambient: Ambient,
    lifetime: TimeDelta,
    authority: String,
    root_pem: String,
    root_sha256: String,
    issuer: Issuer<'static, KeyPair>,
    keyset_key: Ed25519KeyPair,
    signer: Ed25519KeyPair,
    seen: Mutex<Seen>,
    queued: Notify,
}

impl Gateway {
    /// `lifetime` is that of the certificates which nodes get.
    pub async fn start(lifetime: TimeDelta) -> Self {
        let ambient = Ambient::system();
        let ca_key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = ca.self_signed(&ca_key).expect("a root");
        let issuer = Issuer::new(ca, ca_key);
        let server_key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let server = server.signed_by(&server_key, &issuer).expect("a certificate");

        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let chain = vec![server.der().clone(), root.der().clone()];
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS")
            .with_client_cert_verifier(clients.allow_unauthenticated().build().expect("a verifier"))
            .with_single_cert(chain, PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key"))
            .expect("a certificate and its key");
        tls.alpn_protocols = vec![b"h2".to_vec()];

        let shared = Arc::new(Shared {
            lifetime,
            authority: id(&ambient, "ca"),
            root_pem: root.pem(),
            root_sha256: sha256(root.der()),
            issuer,
            keyset_key: Ed25519KeyPair::generate().expect("a key"),
            signer: Ed25519KeyPair::generate().expect("a key"),
            seen: Mutex::default(),
            queued: Notify::new(),
            ambient,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), shared.clone()));
        Self { address, shared }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen()
    }

    /// A node that may enrol once with the token.
    pub fn created_node(&self, hostname: &str) -> (JoinInfo, String) {
        let join = JoinInfo {
            node_id: id(&self.shared.ambient, "node"),
            hostname: hostname.to_owned(),
            url: format!("https://{}", self.address),
            root_sha256: vec![self.shared.root_sha256.clone()],
            keyset_key: hex(self.shared.keyset_key.public_key().as_ref()),
        };
        let token = hex(&self.shared.ambient.bytes::<16>());
        self.seen().tokens.insert(token.clone(), join.node_id.clone());
        (join, token)
    }

    /// Signs and queues; gives the task's id.
    pub fn queue(&self, node: &str, task_type: &str, params: Value) -> String {
        let now = self.shared.ambient.now();
        let task = Task {
            task_id: id(&self.shared.ambient, "task"),
            node_id: node.to_owned(),
            task_type: task_type.to_owned(),
            params,
            attempt: 1,
            issued_at: now,
            expires_at: now + TimeDelta::minutes(10),
            correlation_id: self.shared.ambient.uuid().to_string(),
            traceparent: None,
            signer_version: 1,
        };
        let signed = SignedTask::sign(&task, &self.shared.signer);
        let (node, progress, results) = (task.node_id, Vec::new(), Vec::new());
        let handed = Handed { node, signed, waiting: true, deliveries: 0, progress, results };
        self.seen().tasks.insert(task.task_id.clone(), handed);
        self.shared.queued.notify_waiters();
        task.task_id
    }

    /// As if an answer had been lost and somebody had put the task back.
    pub fn hand_out_again(&self, task: &str) {
        self.seen().tasks.get_mut(task).expect("a task").waiting = true;
        self.shared.queued.notify_waiters();
    }
}

fn id(ambient: &Ambient, prefix: &str) -> String {
    format!("{prefix}_{}", ambient.uuid().simple())
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            shared.seen().connections += 1;
            let leaf = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|leaf| leaf.to_vec());
            let leaf: Arc<[u8]> = leaf.unwrap_or_default().into();
            let service = service_fn(move |request| {
                let (shared, leaf) = (shared.clone(), leaf.clone());
                async move { Ok::<_, std::convert::Infallible>(shared.answer(request, &leaf).await) }
            });
            let _ = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Answered = Result<Value, (StatusCode, &'static str)>;

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn answer(&self, request: Request<Incoming>, leaf: &[u8]) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let contract =
            head.headers.get(CONTRACT_HEADER).and_then(|value| value.to_str().ok()).unwrap_or("none");
        self.seen().contracts.insert(contract.to_owned());
        let path: Vec<&str> = head.uri.path().split('/').skip(1).collect();
        let answer = match path[..] {
            ["internal", "v1", "nodes", "enroll"] => self.enroll(&body),
            ["internal", "v1", "nodes", node, ref rest @ ..] if names(leaf, node) => {
                self.known(node, rest, head.uri.query().unwrap_or(""), &body).await
            }
            _ => Err((StatusCode::UNAUTHORIZED, "token_invalid")),
        };
        let (status, body) = match answer {
            Ok(body) => (StatusCode::OK, body),
            Err((status, code)) => {
                let error = ErrorBody { code: code.to_owned(), message: "refused".to_owned() };
                (status, json!(ErrorAnswer { error }))
            }
        };
        Response::builder()
            .status(status)
            .header(CONTRACT_HEADER, CONTRACT)
            .header(TIME_HEADER, self.ambient.now().timestamp_millis())
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("an answer")
    }

    fn enroll(&self, body: &[u8]) -> Answered {
        let request: EnrollRequest = read(body)?;
        let node = self.seen().tokens.remove(&request.token).filter(|node| *node == request.node_id);
        let node_id = node.ok_or((StatusCode::UNAUTHORIZED, "token_invalid"))?;
        let certificate = self.certificate(&node_id, &request.csr_pem);
        write(Enrolled { node_id, certificate, trust: self.trust(), heartbeat_seconds: 1 })
    }

    async fn known(&self, node: &str, rest: &[&str], query: &str, body: &[u8]) -> Answered {
        match rest {
            ["cert", "renew"] => {
                let request: RenewRequest = read(body)?;
                self.seen().renewals += 1;
                write(Renewed { certificate: self.certificate(node, &request.csr_pem), trust: self.trust() })
            }
            ["trust"] => {
                self.seen().trust_asked += 1;
                write(self.trust())
            }
            ["tasks", "wait"] => self.wait(node, query).await,
            ["tasks", id, "progress"] => {
                let told = read(body)?;
                self.with_task(node, id, |task| task.progress.push(told))?;
                write(ProgressAnswer { cancelled: false })
            }
            ["tasks", id, "result"] => {
                let told = read(body)?;
                self.with_task(node, id, |task| task.results.push(told))?;
                write(ResultAnswer { counted: true })
            }
            ["heartbeat"] => {
                let heartbeat: Heartbeat = read(body)?;
                self.seen().heartbeats.push(heartbeat);
                write(HeartbeatAnswer { heartbeat_seconds: 1, desired_version: 0 })
            }
            other => {
                self.seen().unknown_paths.push(other.join("/"));
                Err((StatusCode::NOT_FOUND, "not_found"))
            }
        }
    }

    fn with_task(
        &self,
        node: &str,
        id: &str,
        change: impl FnOnce(&mut Handed),
    ) -> Result<(), (StatusCode, &'static str)> {
        let mut seen = self.seen();
        let task = seen.tasks.get_mut(id).filter(|task| task.node == node);
        task.map(change).ok_or((StatusCode::NOT_FOUND, "not_found"))
    }

    async fn wait(&self, node: &str, query: &str) -> Answered {
        let query: WaitQuery =
            serde_urlencoded::from_str(query).map_err(|_| (StatusCode::BAD_REQUEST, "validation_error"))?;
        let room = usize::try_from(query.room.unwrap_or(16)).unwrap_or(16);
        let deadline = Instant::now() + Duration::from_secs(query.seconds.unwrap_or(30).min(30).into());
        loop {
            let queued = self.queued.notified();
            tokio::pin!(queued);
            queued.as_mut().enable();
            let tasks = self.hand_out(node, room);
            if !tasks.is_empty() || timeout_at(deadline, queued).await.is_err() {
                return write(Waited { tasks });
            }
        }
    }

    fn hand_out(&self, node: &str, room: usize) -> Vec<SignedTask> {
        let mut seen = self.seen();
        let waiting = seen.tasks.values_mut().filter(|task| task.node == node && task.waiting);
        let hand_out = |task: &mut Handed| {
            task.waiting = false;
            task.deliveries += 1;
            task.signed.clone()
        };
        waiting.take(room).map(hand_out).collect()
    }

    fn certificate(&self, node: &str, csr_pem: &str) -> IssuedCertificate {
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).expect("a request");
        let uri = format!("spiffe://gpuaas.test/node/{node}");
        csr.params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a name"))];
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let not_before = self.ambient.now();
        let not_after = not_before + self.lifetime;
        let time = |at: DateTime<Utc>| {
            rcgen::date_time_ymd(1970, 1, 1)
                + Duration::from_secs(u64::try_from(at.timestamp()).expect("after 1970"))
        };
        (csr.params.not_before, csr.params.not_after) = (time(not_before), time(not_after));
        let certificate = csr.signed_by(&self.issuer).expect("a certificate");
        IssuedCertificate {
            chain_pem: format!("{}{}", certificate.pem(), self.root_pem),
            not_before,
            not_after,
        }
    }

    fn trust(&self) -> Trust {
        let public_key = Base64(self.signer.public_key().as_ref().to_vec());
        let signers = vec![SignerKey { signer_version: 1, state: SignerState::Active, public_key }];
        let keyset = Keyset { serial: 1, issued_at: self.ambient.now(), signers };
        let authority = TrustedAuthority { id: self.authority.clone(), root_pem: self.root_pem.clone() };
        Trust { authorities: vec![authority], keyset: SignedKeyset::sign(&keyset, &self.keyset_key) }
    }
}

/// The name stands in the certificate as plain text. The chain was checked by the handshake.
fn names(leaf: &[u8], node: &str) -> bool {
    let name = format!("/node/{node}");
    leaf.windows(name.len()).any(|part| part == name.as_bytes())
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, &'static str)> {
    serde_json::from_slice(body).map_err(|_| (StatusCode::BAD_REQUEST, "invalid_request"))
}

fn write(value: impl Serialize) -> Answered {
    Ok(serde_json::to_value(value).expect("JSON"))
}
