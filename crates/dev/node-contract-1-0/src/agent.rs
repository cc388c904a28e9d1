//! An agent of 1.0. It says nothing of what it holds, of its trust or of its clock, and fetches no programs.

use std::{collections::BTreeMap, sync::Arc};

use ::aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::Ambient;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    CONTRACT, CONTRACT_HEADER, TIME_HEADER,
    messages::{
        DrainInput, Ending, EnrollRequest, Enrolled, ErrorAnswer, HealthProbeInput, Heartbeat,
        HeartbeatAnswer, Inventory, IssuedCertificate, JoinInfo, Keyset, NodeMetrics, Phase, Progress,
        ProgressAnswer, RefusalReason, RenewRequest, Renewed, ResultAnswer, SignedTask, TaskResult,
        TopologyDiscoverInput, Trust, WaitQuery, Waited,
    },
};

const VERSION: &str = "1.0.0";
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

pub struct Agent {
    pub join: JoinInfo,
    pub certificate: IssuedCertificate,
    pub keyset: Keyset,
    /// What was done, and how it ended: what comes again is told again and not done again.
    pub done: BTreeMap<String, TaskResult>,
    pub drained: bool,
    pub key_pem: String,
    roots: Vec<String>,
    ambient: Ambient,
}

impl Agent {
    pub async fn enroll(join: JoinInfo, token: &str) -> Result<Self, Refused> {
        let (key_pem, csr_pem) = key();
        let request = EnrollRequest {
            node_id: join.node_id.clone(),
            token: token.to_owned(),
            csr_pem,
            hostname: join.hostname.clone(),
            agent_version: VERSION.to_owned(),
            machine_id: "1.0".to_owned(),
        };
        let tls = tls(&join.root_sha256, None);
        let path = "/internal/v1/nodes/enroll";
        let answer: Enrolled = call(&join.url, tls, Method::POST, path, Some(&request)).await?;
        assert_eq!(answer.node_id, join.node_id);
        let keyset = answer.trust.keyset.open(&unhex(&join.keyset_key), 0).expect("a list by the pinned key");
        let roots = roots(&answer.trust);
        assert!(roots.iter().any(|root| join.root_sha256.contains(root)), "a pinned root is in force");
        let (certificate, done) = (answer.certificate, BTreeMap::new());
        Ok(Self {
            join,
            certificate,
            keyset,
            done,
            drained: false,
            key_pem,
            roots,
            ambient: Ambient::system(),
        })
    }

    /// A new key and certificate, and the trust in force.
    pub async fn renew(&mut self) -> Result<(), Refused> {
        let (key_pem, csr_pem) = key();
        let renewed: Renewed = self.post("cert/renew", &RenewRequest { csr_pem }).await?;
        self.believe(&renewed.trust);
        (self.key_pem, self.certificate) = (key_pem, renewed.certificate);
        Ok(())
    }

    pub async fn wait(&self, seconds: u32) -> Result<Vec<SignedTask>, Refused> {
        let query = WaitQuery { seconds: Some(seconds), room: Some(4) };
        let query = serde_urlencoded::to_string(query).expect("a query");
        Ok(self.get::<Waited>(&format!("tasks/wait?{query}")).await?.tasks)
    }

    /// Waits for work, does it and tells of it; gives how much there was.
    pub async fn work(&mut self, seconds: u32) -> Result<usize, Refused> {
        let tasks = self.wait(seconds).await?;
        for signed in &tasks {
            self.follow(signed).await?;
        }
        Ok(tasks.len())
    }

    pub async fn follow(&mut self, signed: &SignedTask) -> Result<ResultAnswer, Refused> {
        let named: Value = serde_json::from_slice(&signed.payload.0).expect("a task");
        let id = named["task_id"].as_str().expect("an id").to_owned();
        if !self.done.contains_key(&id) {
            let result = match self.accept(signed).await? {
                Ok(output) => {
                    let phase = Phase {
                        name: "work".to_owned(),
                        started_at: self.ambient.now(),
                        duration_ms: Some(1),
                    };
                    let progress = Progress { phases: vec![phase] };
                    self.post::<ProgressAnswer>(&format!("tasks/{id}/progress"), &progress).await?;
                    TaskResult { ending: Ending::Succeeded { output }, phases: progress.phases }
                }
                Err(reason) => TaskResult { ending: Ending::Refused { reason }, phases: Vec::new() },
            };
            self.done.insert(id.clone(), result);
        }
        self.post(&format!("tasks/{id}/result"), &self.done[&id]).await
    }

    /// The output of the work, if the task may be done. A signer that is not known may have come since.
    async fn accept(&mut self, signed: &SignedTask) -> Result<Result<Value, RefusalReason>, Refused> {
        let check = |agent: &Self| signed.accept(&agent.keyset, &agent.join.node_id, agent.ambient.now());
        let mut checked = check(self);
        if checked == Err(RefusalReason::UnknownSigner) {
            let trust = self.get("trust").await?;
            self.believe(&trust);
            checked = check(self);
        }
        Ok(checked.and_then(|task| self.run(&task.task_type, task.params)))
    }

    fn run(&mut self, task_type: &str, params: Value) -> Result<Value, RefusalReason> {
        fn input<T: DeserializeOwned>(params: Value) -> Result<T, RefusalReason> {
            serde_json::from_value(params).map_err(|_| RefusalReason::BadParameters)
        }
        let made_up = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        Ok(match task_type {
            "slice.topology_discover" => {
                input::<TopologyDiscoverInput>(params)?;
                let mut topology = made_up(TOPOLOGY);
                topology["hostname"] = json!(self.join.hostname);
                topology
            }
            "diag.health_probe" => {
                let asked: HealthProbeInput = input(params)?;
                let mut report = made_up(HEALTH_REPORT);
                report["profile"] = json!(asked.profile);
                report
            }
            "node.drain" => {
                input::<DrainInput>(params)?;
                self.drained = true;
                json!({ "drained": true })
            }
            _ => return Err(RefusalReason::UnknownType),
        })
    }

    pub async fn heartbeat(&self) -> Result<HeartbeatAnswer, Refused> {
        let heartbeat = Heartbeat {
            agent_version: VERSION.to_owned(),
            certificate_expires_at: self.certificate.not_after,
            applied_version: 0,
            boot_id: "b0070000-0000-4000-8000-000000000001".to_owned(),
            inventory: Inventory { drained: self.drained, ..Inventory::default() },
            findings: Vec::new(),
            metrics: NodeMetrics::default(),
        };
        self.post("heartbeat", &heartbeat).await
    }

    fn believe(&mut self, trust: &Trust) {
        let keyset = trust.keyset.open(&unhex(&self.join.keyset_key), self.keyset.serial);
        self.keyset = keyset.expect("a newer list by the pinned key");
        self.roots = roots(trust);
    }

    async fn post<T: DeserializeOwned>(&self, rest: &str, body: &impl Serialize) -> Result<T, Refused> {
        self.ask(Method::POST, rest, Some(body)).await
    }

    async fn get<T: DeserializeOwned>(&self, rest: &str) -> Result<T, Refused> {
        self.ask(Method::GET, rest, None::<&()>).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        rest: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Refused> {
        let path = format!("/internal/v1/nodes/{}/{rest}", self.join.node_id);
        let tls = tls(&self.roots, Some((&self.certificate.chain_pem, &self.key_pem)));
        call(&self.join.url, tls, method, &path, body).await
    }
}

fn key() -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let csr = rcgen::CertificateParams::default().serialize_request(&key).and_then(|csr| csr.pem());
    (key.serialize_pem(), csr.expect("a request"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(|at| digits(at).expect("hexadecimal digits")).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn roots(trust: &Trust) -> Vec<String> {
    let der = |pem: &String| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a root");
    trust.authorities.iter().map(|authority| sha256(&der(&authority.root_pem))).collect()
}

/// One request on a connection of its own.
async fn call<T: DeserializeOwned>(
    url: &str,
    tls: Arc<ClientConfig>,
    method: Method,
    path: &str,
    body: Option<&impl Serialize>,
) -> Result<T, Refused> {
    let address = url.strip_prefix("https://").expect("https").to_owned();
    let host = address.rsplit_once(':').expect("a port").0.to_owned();
    let stream = TcpStream::connect(&address).await.expect("the listener answers");
    let name = ServerName::try_from(host).expect("a host");
    let stream = TlsConnector::from(tls).connect(name, stream).await.expect("the listener proves itself");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let body = body.map(|body| serde_json::to_vec(body).expect("JSON")).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(format!("{url}{path}"))
        .header(CONTRACT_HEADER, CONTRACT)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("a request");
    let (head, body) = sender.send_request(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    connection.abort();
    check_headers(&head.headers);
    if head.status.is_success() {
        return Ok(serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body:?}")));
    }
    let ErrorAnswer { error } = serde_json::from_slice(&body).expect("the error envelope");
    Err(Refused { status: head.status.as_u16(), code: error.code, message: error.message })
}

/// With every answer come the version that the other side speaks, and its clock.
fn check_headers(headers: &HeaderMap) {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).expect("a header").to_owned();
    assert!(text(CONTRACT_HEADER).starts_with("1."));
    assert!(text(TIME_HEADER).parse::<i64>().is_ok());
}

fn tls(roots: &[String], pair: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Pinned { roots: roots.to_vec(), provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain =
                CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>().expect("a chain");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a certificate and its key")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Believes chains that hold a root with one of these digests.
#[derive(Debug)]
struct Pinned {
    roots: Vec<String>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let root = intermediates.iter().find(|certificate| self.roots.contains(&sha256(certificate)));
        let root = root.ok_or_else(|| Error::General("no pinned root in the chain".to_owned()))?;
        let mut store = RootCertStore::empty();
        store.add(root.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
