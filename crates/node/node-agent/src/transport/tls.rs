//! How the agent recognises the control plane, and shows who it is itself.
//!
//! Before it has joined, it believes only a chain that ends in a root whose digest it was given. Afterwards
//! it believes the roots that it was told over such a connection. There is no way to believe everything.

use std::sync::Arc;

use chrono::TimeDelta;
use kernel::{Ambient, Secret, digest::sha256};
use node_proto::task::CLOCK_TOLERANCE;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

/// Certificates that one answer may hold; more is not a chain but an attack.
const LONGEST_CHAIN: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("there is no root certificate to believe; join again, or repair the state directory")]
    NoRoots,
    #[error("a root certificate cannot be read: {0}")]
    BadRoot(String),
    #[error("the node's certificate or key cannot be used: {0}")]
    BadPair(String),
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Whom the agent believes to be the control plane.
#[derive(Clone)]
pub enum Believed {
    /// Chains that end in a root with one of these SHA-256 digests.
    Pinned(Vec<[u8; 32]>),
    /// Chains that end in one of these roots.
    Roots(Vec<CertificateDer<'static>>),
}

/// The node's own certificate chain and key, in PEM.
#[derive(Clone)]
pub struct Pair {
    pub chain_pem: String,
    pub key_pem: Secret<String>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The settings of one side of a connection; made anew whenever trust or pair change.
pub fn client_config(
    ambient: &Ambient,
    believed: &Believed,
    pair: Option<&Pair>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let verifier = Arc::new(Verifier {
        ambient: ambient.clone(),
        algorithms: provider.signature_verification_algorithms,
        rule: match believed {
            Believed::Pinned(pins) if pins.is_empty() => return Err(TlsError::NoRoots),
            Believed::Pinned(pins) => Rule::Pinned(pins.clone(), provider.clone()),
            Believed::Roots(roots) => Rule::Roots(webpki(roots, provider.clone())?),
        },
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Setup(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let bad = |error: &dyn std::fmt::Display| TlsError::BadPair(error.to_string());
            let chain = certificates(&pair.chain_pem).map_err(|error| bad(&error))?;
            let key = PrivateKeyDer::from_pem_slice(pair.key_pem.expose().as_bytes())
                .map_err(|error| bad(&error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| bad(&error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would carry the identity of the certificate before.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// All certificates of a PEM text, at least one.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|error| TlsError::BadRoot(error.to_string()))?;
    if found.is_empty() { Err(TlsError::BadRoot("no certificate in it".to_owned())) } else { Ok(found) }
}

fn webpki(
    roots: &[CertificateDer<'static>],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone()).map_err(|error| TlsError::BadRoot(error.to_string()))?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
        .build()
        .map_err(|_| TlsError::NoRoots)
}

#[derive(Debug)]
enum Rule {
    Pinned(Vec<[u8; 32]>, Arc<CryptoProvider>),
    Roots(Arc<WebPkiServerVerifier>),
}

struct Verifier {
    ambient: Ambient,
    algorithms: WebPkiSupportedAlgorithms,
    rule: Rule,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.rule.fmt(f)
    }
}

impl Verifier {
    fn inner(&self, chain: &[CertificateDer<'_>]) -> Result<Arc<WebPkiServerVerifier>, Error> {
        match &self.rule {
            Rule::Roots(verifier) => Ok(verifier.clone()),
            Rule::Pinned(pins, provider) => {
                let root = chain.iter().find(|certificate| pins.contains(&sha256(certificate)));
                let root = root.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
                webpki(&[root.clone().into_owned()], provider.clone())
                    .map_err(|error| Error::General(error.to_string()))
            }
        }
    }

    /// The node's clock, and as far off either way as clocks may be.
    fn times(&self) -> [UnixTime; 3] {
        [TimeDelta::zero(), CLOCK_TOLERANCE, -CLOCK_TOLERANCE].map(|shift| {
            let seconds = u64::try_from((self.ambient.now() + shift).timestamp()).unwrap_or(0);
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
        })
    }
}

fn is_about_time(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(
        error,
        Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    )
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if intermediates.len() > LONGEST_CHAIN {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        }
        let inner = self.inner(intermediates)?;
        let mut outcome = Err(Error::InvalidCertificate(CertificateError::Expired));
        for now in self.times() {
            outcome = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
            match &outcome {
                Err(error) if is_about_time(error) => {}
                _ => break,
            }
        }
        outcome
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
