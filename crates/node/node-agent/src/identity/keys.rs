//! The node's key, its certificate request, and what a certificate says.

use chrono::{DateTime, Utc};
use kernel::{Secret, ids::NodeId};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use x509_parser::{extensions::GeneralName, prelude::FromDer as _};

use super::IdentityError;
use crate::transport::{Pair, certificates};

/// A key that has not been certified yet.
pub struct FreshKey {
    pair: KeyPair,
    pub csr_pem: String,
}

impl FreshKey {
    /// A new ECDSA P-256 key and a request for it. The request has no name: the authority gives one.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        Self::requested(pair.map_err(|error| IdentityError::Key(error.to_string()))?)
    }

    /// One that was kept while its request was under way, with a request for it.
    pub fn read(key_pem: &Secret<String>) -> Result<Self, IdentityError> {
        let pair =
            KeyPair::from_pem(key_pem.expose()).map_err(|error| IdentityError::Key(error.to_string()))?;
        Self::requested(pair)
    }

    fn requested(pair: KeyPair) -> Result<Self, IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let csr = params.serialize_request(&pair).and_then(|csr| csr.pem());
        Ok(Self { csr_pem: csr.map_err(|error| IdentityError::Key(error.to_string()))?, pair })
    }

    pub fn key_pem(&self) -> Secret<String> {
        Secret::new(self.pair.serialize_pem())
    }

    /// The pair, if the certificate is for this key and this node.
    pub fn certified(self, chain_pem: &str, node: NodeId) -> Result<Certified, IdentityError> {
        let key_pem = Secret::new(self.pair.serialize_pem());
        Certified::check(Pair { chain_pem: chain_pem.to_owned(), key_pem }, node)
    }
}

/// A key and a certificate that belong together.
#[derive(Clone)]
pub struct Certified {
    pub pair: Pair,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
}

impl Certified {
    /// When it was made: the order of certificates of one node.
    pub(super) fn issued(&self) -> (DateTime<Utc>, DateTime<Utc>) {
        (self.not_before, self.not_after)
    }

    pub fn check(pair: Pair, node: NodeId) -> Result<Self, IdentityError> {
        let bad = |what: &str| IdentityError::Certificate(what.to_owned());
        let chain = certificates(&pair.chain_pem).map_err(|error| bad(&error.to_string()))?;
        let leaf = chain.first().ok_or_else(|| bad("it is empty"))?;
        let (_, leaf) = x509_parser::certificate::X509Certificate::from_der(leaf)
            .map_err(|error| bad(&error.to_string()))?;
        let key =
            KeyPair::from_pem(pair.key_pem.expose()).map_err(|_| bad("the private key cannot be read"))?;
        if leaf.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(bad("it is for another key"));
        }
        let ending = format!("/node/{node}");
        let names = leaf.subject_alternative_name().map_err(|error| bad(&error.to_string()))?;
        let ours = names.is_some_and(|names| {
            names.value.general_names.iter().any(
                |name| matches!(name, GeneralName::URI(uri) if uri.starts_with("spiffe://") && uri.ends_with(&ending)),
            )
        });
        if !ours {
            return Err(bad("it does not name this node"));
        }
        let time = |at: x509_parser::time::ASN1Time| {
            DateTime::from_timestamp(at.timestamp(), 0).ok_or_else(|| bad("its times make no sense"))
        };
        let (not_before, not_after) = (time(leaf.validity().not_before)?, time(leaf.validity().not_after)?);
        Ok(Self { pair, not_before, not_after })
    }
}
