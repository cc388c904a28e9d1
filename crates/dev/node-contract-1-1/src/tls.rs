//! Requests of the agent: HTTP/2 over mutual TLS, to a server whose root is pinned.

use std::sync::Arc;

use ::aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{CONTRACT, CONTRACT_HEADER, TIME_HEADER, agent::Refused, messages::ErrorAnswer};

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map(|at| digits(at).expect("hexadecimal digits")).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// What was answered, and the control plane's clock.
pub(crate) struct Answer {
    pub body: Bytes,
    pub time_ms: i64,
}

/// One request on a connection of its own. With every answer come the version that the other side speaks, and its clock.
pub(crate) async fn call(
    url: &str,
    tls: Arc<ClientConfig>,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Answer, Refused> {
    let address = url.strip_prefix("https://").expect("https").to_owned();
    let host = address.rsplit_once(':').expect("a port").0.to_owned();
    let stream = TcpStream::connect(&address).await.expect("the listener answers");
    let name = ServerName::try_from(host).expect("a host");
    let stream = TlsConnector::from(tls).connect(name, stream).await.expect("the listener proves itself");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
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
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).expect("a header");
    assert!(text(CONTRACT_HEADER).starts_with("1."));
    let time_ms = text(TIME_HEADER).parse().expect("milliseconds");
    if head.status.is_success() {
        return Ok(Answer { body, time_ms });
    }
    let ErrorAnswer { error } = serde_json::from_slice(&body).expect("the error envelope");
    Err(Refused { status: head.status.as_u16(), code: error.code, message: error.message })
}

pub(crate) fn tls(roots: &[String], pair: Option<(&str, &str)>) -> Arc<ClientConfig> {
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
