//! Reading a certificate request: only its public key counts.

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _, SubjectPublicKeyInfo};
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer as _};

use super::CaError;

/// The largest request that is looked at. One with a key that we take has a few hundred bytes.
pub(super) const CSR_BYTES: usize = 8 * 1024;

/// The public key of a request that is signed with the private one.
pub(super) fn public_key(pem: &str) -> Result<SubjectPublicKeyInfo, CaError> {
    if pem.len() > CSR_BYTES {
        return Err(CaError::Request);
    }
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|_| CaError::Request)?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| CaError::Request)?;
    if !rest.is_empty() {
        return Err(CaError::Request);
    }
    let key = SubjectPublicKeyInfo::from_der(request.certification_request_info.subject_pki.raw)
        .map_err(|_| CaError::KeyKind)?;
    if *key.algorithm() != PKCS_ECDSA_P256_SHA256 && *key.algorithm() != PKCS_ED25519 {
        return Err(CaError::KeyKind);
    }
    request.verify_signature().map_err(|_| CaError::RequestSignature)?;
    Ok(key)
}
