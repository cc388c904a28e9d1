//! The certificate authority of the fleet.
//!
//! A generation ([`Authority`]) is a root for ten years and an intermediate for two, both ECDSA P-256. The
//! intermediate issues everything; the root signed the intermediate and is what nodes pin. Certificates and keys
//! are sealed together, bound to the generation's id: a row that somebody else wrote does not open, and one that
//! was moved to another id does not either.
//!
//! Issuing believes nothing in a certificate request but its public key, and that only after the request proved
//! possession of the private one. Name, usage, validity and serial number are ours.

mod authority;
mod csr;
mod issue;

use std::net::IpAddr;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::ids::AuthorityId;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use authority::{Authority, sealer};
pub use issue::Serial;

#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("a certificate authority cannot be made or used: {0}")]
    Library(String),
    #[error(
        "the sealed certificate authority {0} cannot be decrypted: it was sealed with another master key, or \
         changed; restore the master key, or the row from a backup"
    )]
    Sealed(AuthorityId),
    #[error("the certificate request cannot be read; send one in PEM, of at most {} bytes", csr::CSR_BYTES)]
    Request,
    #[error("the certificate request is not signed by its own key; make a new one")]
    RequestSignature,
    #[error("the certificate request has an unsupported key type; use ECDSA P-256 or Ed25519")]
    KeyKind,
    #[error("{0:?} is not valid in a certificate")]
    Name(String),
    #[error("the validity of a certificate must not be empty: from {0} until {1}")]
    Validity(DateTime<Utc>, DateTime<Utc>),
    #[error("the certificate authority {0} has expired; stage and activate a new one")]
    Expired(AuthorityId),
}

impl From<rcgen::Error> for CaError {
    fn from(error: rcgen::Error) -> Self {
        Self::Library(error.to_string())
    }
}

/// What a certificate is for, and so what stands in it.
#[derive(Clone, Debug)]
pub enum Profile {
    /// A node's client certificate.
    Node { spiffe_uri: String },
    /// The certificate of a listener of ours.
    Server { names: Vec<String>, addresses: Vec<IpAddr> },
}

/// From and until when. The end is brought forward when the authority ends earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
}

#[derive(Clone, Debug)]
pub struct Issued {
    pub authority_id: AuthorityId,
    /// The certificate, then the intermediate.
    pub chain_pem: String,
    /// The certificate alone.
    pub der: CertificateDer<'static>,
    /// In lower-case hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// SHA-256 of the public key.
    pub key_sha256: [u8; 32],
    /// What it says, to the second.
    pub validity: Validity,
}

/// A certificate of a listener with its key. The chain includes the root, so that a joining node, which knows
/// only the root's digest, can find it there.
pub struct ServerCertificate {
    pub issued: Issued,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// A root that certificates may chain to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub authority_id: AuthorityId,
    pub der: CertificateDer<'static>,
}

impl Root {
    pub fn pem(&self) -> String {
        crate::pem::certificate(&self.der)
    }

    /// SHA-256 of the certificate: what joining nodes pin.
    pub fn fingerprint(&self) -> [u8; 32] {
        kernel::digest::sha256(&self.der)
    }
}

/// Whoever issues certificates: the embedded authority, or another (step-ca, Vault PKI) reached over the network.
#[async_trait]
pub trait CertificateIssuer: Send + Sync {
    async fn issue(&self, csr_pem: &str, profile: Profile, validity: Validity) -> Result<Issued, CaError>;
    /// What its certificates chain to.
    async fn roots(&self) -> Result<Vec<Root>, CaError>;
}

/// An authority together with the randomness that serial numbers come from.
pub struct Embedded {
    pub authority: std::sync::Arc<Authority>,
    pub ambient: kernel::Ambient,
}

#[async_trait]
impl CertificateIssuer for Embedded {
    async fn issue(&self, csr_pem: &str, profile: Profile, validity: Validity) -> Result<Issued, CaError> {
        self.authority.issue(csr_pem, &profile, Serial::random(&self.ambient), validity)
    }

    async fn roots(&self) -> Result<Vec<Root>, CaError> {
        Ok(vec![self.authority.root()])
    }
}
