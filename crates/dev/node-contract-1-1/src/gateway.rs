//! A gateway of 1.1, in this process: mutual TLS with a small authority of its own, tasks in memory.
//!
//! It hands out a task again when its lease has lapsed and the node says that it does not have it. It knows nothing of
//! tunnels, and asks nobody to dial.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use chrono::TimeDelta;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::Ambient;
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
    authority::{Authority, lock},
    messages::{
        EnrollRequest, Enrolled, ErrorAnswer, ErrorBody, Heartbeat, HeartbeatAnswer, IssuedCertificate,
        JoinInfo, LogBatch, LogLine, LogsTaken, Progress, ProgressAnswer, RenewRequest, Renewed,
        ResultAnswer, SignedTask, Task, TaskResult, Trust, WaitQuery, Waited,
    },
    tls::{hex, sha256},
};

/// A task that was handed out and is not held after this time is handed out again.
const LEASE: Duration = Duration::from_secs(2);
/// So often a wait looks for tasks that come back.
const LOOK: Duration = Duration::from_millis(200);

pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What nodes did here.
#[derive(Default)]
pub struct Seen {
    pub connections: u32,
    /// The digest of each key that a certificate was asked for: to join, and to renew.
    pub keys: Vec<String>,
    pub trust_asked: u32,
    pub heartbeats: Vec<Heartbeat>,
    pub waits: Vec<WaitQuery>,
    pub log_lines: Vec<LogLine>,
    pub tasks: BTreeMap<String, Handed>,
    /// By their digest.
    programs: BTreeMap<String, Vec<u8>>,
    /// By the header; what the other side says it speaks.
    pub contracts: BTreeSet<String>,
    /// Paths that 1.1 did not have, without the node's id.
    pub unknown_paths: Vec<String>,
    /// So many answers to renewals do not arrive.
    pub lost_renewals: u32,
    tokens: BTreeMap<String, String>,
    /// Nodes that are to make a new key.
    rekey: BTreeSet<String>,
}

pub struct Handed {
    pub node: String,
    pub signed: SignedTask,
    pub deliveries: u32,
    /// Nothing while it waits.
    lease_until: Option<Instant>,
    pub progress: Vec<Progress>,
    pub results: Vec<TaskResult>,
}

struct Shared {
    ambient: Ambient,
    authority: Authority,
    seen: Mutex<Seen>,
    queued: Notify,
}

impl Gateway {
    /// `lifetime` is that of the certificates which nodes get.
    pub async fn start(lifetime: TimeDelta) -> Self {
        let ambient = Ambient::system();
        let (authority, tls) = Authority::new(id(&ambient, "ca"), lifetime);
        let shared = Arc::new(Shared { authority, seen: Mutex::default(), queued: Notify::new(), ambient });
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
            root_sha256: vec![self.shared.authority.root_sha256.clone()],
            keyset_key: self.shared.authority.keyset_key(),
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
            // The authority says who signs.
            signer_version: 0,
        };
        let (node, id) = (task.node_id.clone(), task.task_id.clone());
        let signed = self.shared.authority.sign(task);
        let (progress, results) = (Vec::new(), Vec::new());
        let handed = Handed { node, signed, deliveries: 0, lease_until: None, progress, results };
        self.seen().tasks.insert(id.clone(), handed);
        self.shared.queued.notify_waiters();
        id
    }

    /// As if an answer had been lost and somebody had put the task back.
    pub fn hand_out_again(&self, task: &str) {
        self.seen().tasks.get_mut(task).expect("a task").lease_until = None;
        self.shared.queued.notify_waiters();
    }

    /// As after the end of a tenancy: the node is asked for a new key until it has one.
    pub fn ask_for_new_key(&self, node: &str) {
        self.seen().rekey.insert(node.to_owned());
        self.shared.queued.notify_waiters();
    }

    /// A program that nodes may fetch; gives its digest.
    pub fn offer(&self, program: Vec<u8>) -> String {
        let digest = sha256(&program);
        self.seen().programs.insert(digest.clone(), program);
        digest
    }

    /// A new signer, which signs from now on. Nodes learn of it by the answers to their reports.
    pub fn change_signer(&self) {
        self.shared.authority.change_signer();
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

type Answered = Result<Bytes, (StatusCode, &'static str)>;
const NOT_FOUND: (StatusCode, &str) = (StatusCode::NOT_FOUND, "not_found");

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
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
                (status, Bytes::from(json!(ErrorAnswer { error }).to_string()))
            }
        };
        Response::builder()
            .status(status)
            .header(CONTRACT_HEADER, CONTRACT)
            .header(TIME_HEADER, self.ambient.now().timestamp_millis())
            .body(Full::new(body))
            .expect("an answer")
    }

    fn enroll(&self, body: &[u8]) -> Answered {
        let request: EnrollRequest = read(body)?;
        let node = self.seen().tokens.remove(&request.token).filter(|node| *node == request.node_id);
        let node_id = node.ok_or((StatusCode::UNAUTHORIZED, "token_invalid"))?;
        let certificate = self.certificate(&node_id, &request.csr_pem);
        write(Enrolled { node_id, certificate, trust: self.trust(), heartbeat_seconds: 1 })
    }

    fn certificate(&self, node: &str, csr_pem: &str) -> IssuedCertificate {
        let (key, certificate) = self.authority.certificate(node, csr_pem, self.ambient.now());
        self.seen().keys.push(key);
        certificate
    }

    fn trust(&self) -> Trust {
        self.authority.trust(self.ambient.now())
    }

    async fn known(&self, node: &str, rest: &[&str], query: &str, body: &[u8]) -> Answered {
        match rest {
            ["cert", "renew"] => {
                let request: RenewRequest = read(body)?;
                let certificate = self.certificate(node, &request.csr_pem);
                let mut seen = self.seen();
                seen.rekey.remove(node);
                if seen.lost_renewals > 0 {
                    seen.lost_renewals -= 1;
                    return Err((StatusCode::SERVICE_UNAVAILABLE, "unavailable"));
                }
                write(Renewed { certificate, trust: self.trust() })
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
                let mut seen = self.seen();
                seen.heartbeats.push(heartbeat);
                write(HeartbeatAnswer {
                    heartbeat_seconds: 1,
                    desired_version: 0,
                    keyset_serial: Some(self.authority.keyset_serial()),
                    authority_ids: Some(vec![self.authority.id.clone()]),
                    renew_now: seen.rekey.contains(node).then_some(true),
                })
            }
            ["logs"] => {
                let LogBatch { lines, .. } = read(body)?;
                let taken = u32::try_from(lines.len()).expect("few");
                self.seen().log_lines.extend(lines);
                write(LogsTaken { lines: taken })
            }
            ["programs", digest] => {
                let program = self.seen().programs.get(*digest).cloned();
                program.map(Bytes::from).ok_or(NOT_FOUND)
            }
            other => {
                self.seen().unknown_paths.push(other.join("/"));
                Err(NOT_FOUND)
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
        task.map(change).ok_or(NOT_FOUND)
    }

    async fn wait(&self, node: &str, query: &str) -> Answered {
        let query: WaitQuery =
            serde_urlencoded::from_str(query).map_err(|_| (StatusCode::BAD_REQUEST, "validation_error"))?;
        self.seen().waits.push(query.clone());
        let deadline = Instant::now() + Duration::from_secs(query.seconds.unwrap_or(30).min(30).into());
        loop {
            let queued = self.queued.notified();
            tokio::pin!(queued);
            queued.as_mut().enable();
            let tasks = self.hand_out(node, &query);
            let renew_now = self.seen().rekey.contains(node).then_some(true);
            if !tasks.is_empty() || renew_now.is_some() || Instant::now() >= deadline {
                return write(Waited { tasks, renew_now });
            }
            let _ = timeout_at(deadline.min(Instant::now() + LOOK), queued).await;
        }
    }

    /// What waits; and what was handed out and is not held, if the node says what it holds.
    fn hand_out(&self, node: &str, query: &WaitQuery) -> Vec<SignedTask> {
        let (now, holding) = (Instant::now(), query.holding.as_deref());
        let is_lost = |id: &str| holding.is_some_and(|held| held.split(',').all(|held| held != id));
        let mut seen = self.seen();
        let open = seen.tasks.iter_mut().filter(|(id, task)| {
            let comes_back = |until| until < now && task.results.is_empty() && is_lost(id);
            task.node == node && task.lease_until.is_none_or(comes_back)
        });
        let hand_out = |(_, task): (&String, &mut Handed)| {
            task.lease_until = Some(now + LEASE);
            task.deliveries += 1;
            task.signed.clone()
        };
        let room = usize::try_from(query.room.unwrap_or(16)).unwrap_or(16);
        open.take(room).map(hand_out).collect()
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
    Ok(Bytes::from(serde_json::to_vec(&value).expect("JSON")))
}
