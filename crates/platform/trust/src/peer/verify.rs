//! The check of a presented chain.

use std::time::Duration;

use chrono::{DateTime, Utc};
use kernel::ids::{AuthorityId, NodeId};
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use crate::ca::{CaError, Root};

/// The longest chain that is looked at, and its size altogether.
pub const CHAIN_CERTIFICATES: usize = 4;
pub const CHAIN_BYTES: usize = 16 * 1024;

/// What our certificates are signed with, and what another authority of the same interface may use.
const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] =
    &[webpki::aws_lc_rs::ECDSA_P256_SHA256, webpki::aws_lc_rs::ECDSA_P384_SHA384, webpki::aws_lc_rs::ED25519];

/// Why a certificate does not make its holder a node. The words are for the peer's log and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefusal {
    #[error("the certificate was not issued by a trusted authority; enrol again with a repair token")]
    UnknownAuthority,
    #[error("the certificate has expired; enrol again with a repair token")]
    Expired,
    #[error("the certificate is not valid yet; check the clocks")]
    NotYetValid,
    #[error("the certificate is not a client certificate")]
    WrongUsage,
    #[error("the certificate does not name exactly one node")]
    NoName,
    #[error("the certificate names something in another trust domain")]
    ForeignDomain,
    #[error("the certificate chain cannot be read, or is too long")]
    Malformed,
}

impl PeerRefusal {
    /// A stable name for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownAuthority => "unknown_authority",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongUsage => "wrong_usage",
            Self::NoName => "no_name",
            Self::ForeignDomain => "foreign_domain",
            Self::Malformed => "malformed",
        }
    }
}

/// A node, as its certificate proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    pub node_id: NodeId,
    /// `spiffe://<domain>/node/<id>`
    pub spiffe_id: String,
    /// In lower-case hexadecimal.
    pub serial: String,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
    pub authority_id: AuthorityId,
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// SHA-256 of the public key.
    pub key_sha256: [u8; 32],
}

/// The roots in force and the domain that names must belong to. Cheap enough to make anew at every change.
pub struct PeerVerifier {
    prefix: String,
    authorities: Vec<AuthorityId>,
    anchors: Vec<TrustAnchor<'static>>,
}

impl PeerVerifier {
    pub fn new(trust_domain: &str, roots: &[Root]) -> Result<Self, CaError> {
        let mut this = Self {
            prefix: format!("spiffe://{trust_domain}/"),
            authorities: Vec::with_capacity(roots.len()),
            anchors: Vec::with_capacity(roots.len()),
        };
        for root in roots {
            let anchor = webpki::anchor_from_trusted_cert(&root.der)
                .map_err(|error| CaError::Library(error.to_string()))?;
            this.authorities.push(root.authority_id);
            this.anchors.push(anchor.to_owned());
        }
        Ok(this)
    }

    pub fn authorities(&self) -> &[AuthorityId] {
        &self.authorities
    }

    /// The certificate first, then what leads to a root, as the peer sent them.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Result<PeerCertificate, PeerRefusal> {
        if !within_bounds(chain) {
            return Err(PeerRefusal::Malformed);
        }
        let (leaf, intermediates) = chain.split_first().ok_or(PeerRefusal::Malformed)?;
        let (rest, certificate) =
            x509_parser::parse_x509_certificate(leaf).map_err(|_| PeerRefusal::Malformed)?;
        if !rest.is_empty() {
            return Err(PeerRefusal::Malformed);
        }
        let (from, until) = (
            time(certificate.validity().not_before.timestamp())?,
            time(certificate.validity().not_after.timestamp())?,
        );
        // Where it comes from is asked first, at a time when it was valid: what a stranger's certificate says of
        // its own end means nothing.
        let authority_id = self.chain(leaf, intermediates, now.clamp(from, until.max(from)))?;
        usage(&certificate)?;
        let (node_id, spiffe_id) = self.name(&certificate)?;
        if now < from {
            return Err(PeerRefusal::NotYetValid);
        }
        if now > until {
            return Err(PeerRefusal::Expired);
        }
        let serial = certificate.raw_serial();
        let serial = serial.strip_prefix(&[0]).unwrap_or(serial);
        let serial = serial.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(PeerCertificate {
            node_id,
            spiffe_id,
            serial,
            not_before: from,
            not_after: until,
            authority_id,
            fingerprint: kernel::digest::sha256(leaf),
            key_sha256: kernel::digest::sha256(certificate.public_key().raw),
        })
    }

    fn chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        at: DateTime<Utc>,
    ) -> Result<AuthorityId, PeerRefusal> {
        let seconds = u64::try_from(at.timestamp()).map_err(|_| PeerRefusal::Malformed)?;
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let end_entity = EndEntityCert::try_from(leaf).map_err(|_| PeerRefusal::Malformed)?;
        let path = end_entity
            .verify_for_usage(
                ALGORITHMS,
                &self.anchors,
                intermediates,
                at,
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(|error| refusal(&error))?;
        let anchor = self.anchors.iter().position(|anchor| anchor == path.anchor());
        let authority = anchor.and_then(|at| self.authorities.get(at)).copied();
        authority.ok_or(PeerRefusal::UnknownAuthority)
    }

    /// The one URI among its names.
    fn name(&self, certificate: &X509Certificate<'_>) -> Result<(NodeId, String), PeerRefusal> {
        let names = certificate.subject_alternative_name().map_err(|_| PeerRefusal::Malformed)?;
        let names = names.map(|extension| &extension.value.general_names[..]).unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        let (Some(uri), None) = (uris.next(), uris.next()) else { return Err(PeerRefusal::NoName) };
        if !uri.starts_with("spiffe://") {
            return Err(PeerRefusal::NoName);
        }
        let path = uri.strip_prefix(&self.prefix).ok_or(PeerRefusal::ForeignDomain)?;
        let id = path.strip_prefix("node/").ok_or(PeerRefusal::NoName)?;
        Ok((id.parse().map_err(|_| PeerRefusal::NoName)?, uri.to_owned()))
    }
}

/// Few and small enough to be looked at.
pub(super) fn within_bounds<'a, 'b: 'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'b>>) -> bool {
    let (count, bytes) =
        chain.into_iter().fold((0, 0), |(count, bytes), certificate| (count + 1, bytes + certificate.len()));
    count <= CHAIN_CERTIFICATES && bytes <= CHAIN_BYTES
}

/// It says that it is for clients, and that its key signs. Saying nothing is not enough.
fn usage(certificate: &X509Certificate<'_>) -> Result<(), PeerRefusal> {
    let purposes = certificate.extended_key_usage().map_err(|_| PeerRefusal::Malformed)?;
    let usage = certificate.key_usage().map_err(|_| PeerRefusal::Malformed)?;
    let for_clients = purposes.is_some_and(|extension| extension.value.client_auth);
    let signs = usage.is_some_and(|extension| extension.value.digital_signature());
    if for_clients && signs && !certificate.is_ca() { Ok(()) } else { Err(PeerRefusal::WrongUsage) }
}

fn refusal(error: &webpki::Error) -> PeerRefusal {
    use webpki::Error;
    match error {
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension | Error::CaUsedAsEndEntity => {
            PeerRefusal::WrongUsage
        }
        Error::BadDer
        | Error::BadDerTime
        | Error::ExtensionValueInvalid
        | Error::InvalidCertValidity
        | Error::InvalidSerialNumber
        | Error::MalformedExtensions
        | Error::TrailingData(_)
        | Error::UnsupportedCertVersion
        | Error::UnsupportedCriticalExtension
        | Error::MaximumPathDepthExceeded
        | Error::MaximumPathBuildCallsExceeded
        | Error::MaximumSignatureChecksExceeded => PeerRefusal::Malformed,
        // Of the leaf these cannot come, for it was asked at a time when it was valid: an authority has ended.
        _ => PeerRefusal::UnknownAuthority,
    }
}

fn time(seconds: i64) -> Result<DateTime<Utc>, PeerRefusal> {
    DateTime::from_timestamp(seconds, 0).ok_or(PeerRefusal::Malformed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_refusal_has_a_stable_name_of_its_own() {
        let all = [
            PeerRefusal::UnknownAuthority,
            PeerRefusal::Expired,
            PeerRefusal::NotYetValid,
            PeerRefusal::WrongUsage,
            PeerRefusal::NoName,
            PeerRefusal::ForeignDomain,
            PeerRefusal::Malformed,
        ];
        assert_eq!(all.map(PeerRefusal::name).into_iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(PeerRefusal::NotYetValid.name(), "not_yet_valid");
    }

    #[test]
    fn what_cannot_be_read_is_told_from_what_nobody_in_force_signed() {
        for (error, expected) in [
            (webpki::Error::BadDer, PeerRefusal::Malformed),
            (webpki::Error::MaximumSignatureChecksExceeded, PeerRefusal::Malformed),
            (webpki::Error::CaUsedAsEndEntity, PeerRefusal::WrongUsage),
            (webpki::Error::UnknownIssuer, PeerRefusal::UnknownAuthority),
        ] {
            assert_eq!(refusal(&error), expected, "{error:?}");
        }
    }
}
