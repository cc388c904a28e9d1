//! A control plane of a few hundred lines: it hands out what is queued, takes what is told, and can be told to
//! misbehave.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::{
    Ambient,
    ids::{NodeId, TaskId},
};
use node_proto::{
    SignedTask,
    contract::{
        CONTRACT, CONTRACT_HEADER, Dial, EnrollRequest, Enrolled, Heartbeat, HeartbeatAnswer, LogBatch,
        LogsTaken, ProgressAnswer, RenewRequest, Renewed, ResultAnswer, TIME_HEADER, TaskResult, Trust,
        WaitQuery, Waited,
    },
};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use serde::Serialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
};
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;

pub const HOST: &str = "cp.test";
pub const URL: &str = "https://cp.test:7443";
pub const TOKEN: &str = "good token";

#[derive(Default)]
pub struct Told {
    pub queue: VecDeque<SignedTask>,
    /// Handed out again whenever the node does not hold it.
    pub sticky: Vec<(TaskId, SignedTask)>,
    pub results: BTreeMap<TaskId, Vec<TaskResult>>,
    pub progress: BTreeMap<TaskId, u32>,
    pub cancelled: BTreeSet<TaskId>,
    pub heartbeats: Vec<Heartbeat>,
    pub log_lines: Vec<String>,
    pub renewals: u32,
    pub waits: u32,
    /// The room of the last wait.
    pub room: Option<u32>,
    /// The next wait is told to dial this gateway.
    pub dial: Option<Dial>,
    pub connections: u32,
    pub refused: u32,
    /// So many results are taken, but their senders do not hear it.
    pub lose_result_answers: u32,
    /// The public keys of renewals, in the order in which they came.
    pub renewal_keys: Vec<Vec<u8>>,
    /// So many renewals are granted, but the node does not hear it.
    pub lose_renewal_answers: u32,
    /// The node is to make a new key.
    pub renew_now: bool,
    /// So many results are answered with 503 and not taken.
    pub busy_results: u32,
    pub refuse_results: bool,
    /// Certificates with a start later than this are refused.
    pub refuse_certificates_from: Option<DateTime<Utc>>,
    /// Those with an earlier start than this are refused, as after a repair.
    pub refuse_certificates_before: Option<DateTime<Utc>>,
    pub refuse_all: bool,
    pub keyset_serial: u64,
    pub told_trust: Option<Trust>,
    pub certificate_life: Option<TimeDelta>,
    pub program: Vec<u8>,
    pub down: bool,
    /// How long a test waits for something, in tokio's time.
    pub patience: Duration,
}

type Issued = (NodeId, DateTime<Utc>, DateTime<Utc>);

pub struct Gateway {
    pub authority: Mutex<Authority>,
    pub ambient: Ambient,
    told: Mutex<Told>,
    pub changed: Notify,
    server: Mutex<Arc<ServerConfig>>,
    /// Certificates by digest, with the time from which they are good and their end.
    issued: Mutex<BTreeMap<Vec<u8>, Issued>>,
}

/// Takes any client certificate at the TLS level, as the node listener does, and proves only its key.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyClient(provider)))
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

impl Gateway {
    pub fn new(ambient: Ambient) -> Arc<Self> {
        let now = ambient.now();
        let authority = Authority::new(now);
        let (chain, key) = authority.server(HOST, now - TimeDelta::hours(1), now + TimeDelta::days(30));
        Arc::new(Self {
            server: Mutex::new(server_config(chain, key)),
            authority: Mutex::new(authority),
            ambient,
            told: Mutex::new(Told {
                keyset_serial: 1,
                patience: Duration::from_secs(3600 * 48),
                ..Told::default()
            }),
            changed: Notify::new(),
            issued: Mutex::default(),
        })
    }

    pub fn use_server_certificate(&self, name: &str, from: DateTime<Utc>, to: DateTime<Utc>) {
        let (chain, key) = self.authority.lock().unwrap().server(name, from, to);
        *self.server.lock().unwrap() = server_config(chain, key);
    }

    pub fn reports_lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    pub fn queue(&self, task: SignedTask) {
        self.reports_lock().queue.push_back(task);
        self.changed.notify_waiters();
    }

    pub fn trust(&self) -> Trust {
        let serial = self.reports_lock().keyset_serial;
        let told = self.reports_lock().told_trust.clone();
        told.unwrap_or_else(|| self.authority.lock().unwrap().trust(serial, self.ambient.now()))
    }

    /// Waits until `seen` is true of what was told; tokio's time decides when that takes too long.
    pub async fn until(&self, what: &str, seen: impl Fn(&Told) -> bool) {
        let patience = self.reports_lock().patience;
        let waiting = async {
            while !seen(&self.reports_lock()) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    fn issue(&self, csr: &str, node: NodeId) -> node_proto::contract::IssuedCertificate {
        let life = self.reports_lock().certificate_life.unwrap_or(TimeDelta::hours(24));
        // Certificates count whole seconds.
        let from = DateTime::from_timestamp(self.ambient.now().timestamp(), 0).unwrap();
        let certificate = self.authority.lock().unwrap().issue(csr, node, from, life);
        let der = node_agent::transport::certificates(&certificate.chain_pem).unwrap().swap_remove(0);
        self.issued.lock().unwrap().insert(der.to_vec(), (node, from, from + life));
        certificate
    }

    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self: Arc<Self>, stream: S) {
        let config = self.server.lock().unwrap().clone();
        let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
        let peer =
            stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|leaf| leaf.to_vec());
        self.reports_lock().connections += 1;
        let broken = Arc::new(Notify::new());
        let (this, cut) = (self.clone(), broken.clone());
        let service = service_fn(move |request| {
            let (this, peer, cut) = (this.clone(), peer.clone(), cut.clone());
            async move { Ok::<_, Infallible>(this.answer(request, peer, &cut).await) }
        });
        let connection =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            _ = connection => {}
            () = broken.notified() => {}
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Option<Vec<u8>>,
        cut: &Notify,
    ) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        assert_eq!(head.headers.get(CONTRACT_HEADER).unwrap(), CONTRACT);
        let path: Vec<&str> = head.uri.path().split('/').skip(4).collect();
        if path == ["enroll"] {
            let request: EnrollRequest = serde_json::from_slice(&body).unwrap();
            if request.token != TOKEN {
                return self.error(StatusCode::UNAUTHORIZED, "token_invalid");
            }
            let certificate = self.issue(&request.csr_pem, request.node_id);
            return self.json(&Enrolled {
                node_id: request.node_id,
                certificate,
                trust: self.trust(),
                heartbeat_seconds: 10,
            });
        }
        let who = peer.and_then(|der| self.issued.lock().unwrap().get(&der).copied());
        let now = self.ambient.now();
        let (refuse_from, refuse_before) = {
            let told = self.reports_lock();
            (told.refuse_certificates_from, told.refuse_certificates_before)
        };
        let believed = who.filter(|(node, from, end)| {
            path[0] == node.to_string()
                && *end > now
                && refuse_from.is_none_or(|at| *from < at)
                && refuse_before.is_none_or(|at| *from >= at)
        });
        let Some((node, ..)) = believed.filter(|_| !self.reports_lock().refuse_all) else {
            self.reports_lock().refused += 1;
            return self.error(StatusCode::UNAUTHORIZED, "token_invalid");
        };
        match path[1..] {
            ["cert", "renew"] => {
                let request: RenewRequest = serde_json::from_slice(&body).unwrap();
                if self.renewal_is_lost(&request) {
                    cut.notify_one();
                    return std::future::pending().await;
                }
                self.json(&Renewed { certificate: self.issue(&request.csr_pem, node), trust: self.trust() })
            }
            ["trust"] => self.json(&self.trust()),
            ["tasks", "wait"] => self.wait(head.uri.query().unwrap_or_default()).await,
            ["tasks", id, "progress"] => {
                let id: TaskId = id.parse().unwrap();
                let mut told = self.reports_lock();
                *told.progress.entry(id).or_default() += 1;
                let cancelled = told.cancelled.contains(&id);
                drop(told);
                self.json(&ProgressAnswer { cancelled })
            }
            ["tasks", id, "result"] => match self.take_result(id.parse().unwrap(), &body) {
                Some(answer) => answer,
                None => {
                    cut.notify_one();
                    std::future::pending().await
                }
            },
            ["heartbeat"] => {
                let trust = self.trust();
                let mut told = self.reports_lock();
                told.heartbeats.push(serde_json::from_slice(&body).unwrap());
                let answer = HeartbeatAnswer {
                    renew_now: told.renew_now.then_some(true),
                    heartbeat_seconds: 10,
                    desired_version: 7,
                    keyset_serial: Some(told.keyset_serial),
                    authority_ids: Some(trust.authorities.iter().map(|authority| authority.id).collect()),
                };
                drop(told);
                self.json(&answer)
            }
            ["logs"] => {
                let batch: LogBatch = serde_json::from_slice(&body).unwrap();
                let lines = batch.lines.len() as u32;
                self.reports_lock().log_lines.extend(batch.lines.into_iter().map(|line| line.message));
                self.json(&LogsTaken { lines })
            }
            ["programs", _] => Response::new(Full::new(self.reports_lock().program.clone().into())),
            _ => self.error(StatusCode::NOT_FOUND, "not_found"),
        }
    }

    /// `None` when the answer is lost.
    /// Notes a renewal; true when its answer is not to arrive.
    fn renewal_is_lost(&self, request: &RenewRequest) -> bool {
        let csr = rcgen::CertificateSigningRequestParams::from_pem(&request.csr_pem).unwrap();
        let mut told = self.reports_lock();
        told.renewals += 1;
        told.renew_now = false;
        told.renewal_keys.push(rcgen::PublicKeyData::der_bytes(&csr.public_key).to_vec());
        let lost = told.lose_renewal_answers > 0;
        told.lose_renewal_answers = told.lose_renewal_answers.saturating_sub(1);
        self.changed.notify_waiters();
        lost
    }

    fn take_result(&self, id: TaskId, body: &[u8]) -> Option<Response<Full<Bytes>>> {
        let mut told = self.reports_lock();
        if told.refuse_results {
            return Some(self.error(StatusCode::NOT_FOUND, "not_found"));
        }
        if told.busy_results > 0 {
            told.busy_results -= 1;
            return Some(self.error(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable"));
        }
        told.results.entry(id).or_default().push(serde_json::from_slice(body).unwrap());
        told.sticky.retain(|(sticky, _)| *sticky != id);
        if told.lose_result_answers > 0 {
            told.lose_result_answers -= 1;
            return None;
        }
        Some(self.json(&ResultAnswer { counted: true }))
    }

    async fn wait(&self, query: &str) -> Response<Full<Bytes>> {
        let query: WaitQuery = serde_urlencoded::from_str(query).unwrap();
        let holding = query.holding.unwrap();
        let room = query.room.unwrap();
        self.reports_lock().waits += 1;
        self.reports_lock().room = Some(room);
        let ends = tokio::time::Instant::now() + Duration::from_secs(query.seconds.unwrap().into());
        loop {
            let changed = self.changed.notified();
            let (tasks, dial) = {
                let mut told = self.reports_lock();
                let given = told.queue.len().min(room as usize);
                let mut tasks: Vec<SignedTask> = told.queue.drain(..given).collect();
                let missing = told.sticky.iter().filter(|(id, _)| !holding.contains(&id.to_string()));
                tasks.extend(missing.map(|(_, task)| task.clone()));
                (tasks, told.dial.take())
            };
            let has_news = !tasks.is_empty() || dial.is_some();
            if has_news || tokio::time::timeout_at(ends, changed).await.is_err() {
                return self.json(&Waited { tasks, renew_now: None, dial });
            }
        }
    }

    fn json(&self, value: &impl Serialize) -> Response<Full<Bytes>> {
        Response::builder()
            .header(TIME_HEADER, self.ambient.now().timestamp_millis())
            .body(Full::new(serde_json::to_vec(value).unwrap().into()))
            .unwrap()
    }

    fn error(&self, status: StatusCode, code: &str) -> Response<Full<Bytes>> {
        let body = serde_json::json!({ "error": { "code": code, "message": "no" } });
        let mut answer = self.json(&body);
        *answer.status_mut() = status;
        answer
    }
}
