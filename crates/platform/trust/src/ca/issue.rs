//! Issuing: what stands in a certificate is decided here.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, SubsecRound as _, Utc};
use kernel::Ambient;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
};
use rustls::{
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};

use super::{Authority, CaError, Issued, Profile, ServerCertificate, Validity, csr};
use crate::pem;

/// The number that a certificate is known by: 16 bytes, random but for the sign and the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial([u8; 16]);

impl Serial {
    pub fn random(ambient: &Ambient) -> Self {
        let mut bytes = ambient.bytes::<16>();
        // Positive, and without leading zeros: one spelling.
        bytes[0] = (bytes[0] & 0x3f) | 0x40;
        Self(bytes)
    }

    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Authority {
    /// A certificate for the key of a request.
    pub fn issue(
        &self,
        csr_pem: &str,
        profile: &Profile,
        serial: Serial,
        validity: Validity,
    ) -> Result<Issued, CaError> {
        self.sign(&csr::public_key(csr_pem)?, profile, serial, validity)
    }

    /// A client certificate for a node, whatever its request asks for.
    pub fn issue_node(
        &self,
        csr_pem: &str,
        spiffe_uri: &str,
        serial: Serial,
        not_before: DateTime<Utc>,
        not_after: DateTime<Utc>,
    ) -> Result<Issued, CaError> {
        let profile = Profile::Node { spiffe_uri: spiffe_uri.to_owned() };
        self.issue(csr_pem, &profile, serial, Validity { not_before, not_after })
    }

    /// A certificate for a listener of ours, with a key that is made here and kept nowhere.
    pub fn issue_server(
        &self,
        names: &[String],
        addresses: &[IpAddr],
        serial: Serial,
        validity: Validity,
    ) -> Result<ServerCertificate, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let profile = Profile::Server { names: names.to_vec(), addresses: addresses.to_vec() };
        let issued = self.sign(&key, &profile, serial, validity)?;
        let chain = vec![issued.der.clone(), self.intermediate.clone(), self.root().der];
        Ok(ServerCertificate { issued, chain, key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)) })
    }

    fn sign(
        &self,
        key: &impl PublicKeyData,
        profile: &Profile,
        serial: Serial,
        wanted: Validity,
    ) -> Result<Issued, CaError> {
        let not_before = wanted.not_before.trunc_subsecs(0);
        let not_after = wanted.not_after.trunc_subsecs(0).min(self.not_after());
        if not_before >= self.not_after() {
            return Err(CaError::Expired(self.id()));
        }
        if not_before >= not_after {
            return Err(CaError::Validity(not_before, not_after));
        }
        let mut params = leaf(profile)?;
        params.serial_number = Some(SerialNumber::from_slice(serial.bytes()));
        set_validity(&mut params, not_before, not_after)?;
        let issuer = Issuer::from_ca_cert_der(&self.intermediate, &self.issuing_key.0)?;
        let certificate = params.signed_by(key, &issuer)?;
        let der = certificate.der().clone();
        Ok(Issued {
            authority_id: self.id(),
            chain_pem: pem::certificate(&der) + &self.issuing_pem(),
            serial: serial.hex(),
            fingerprint: kernel::digest::sha256(&der),
            key_sha256: kernel::digest::sha256(key.subject_public_key_info()),
            validity: Validity { not_before, not_after },
            der,
        })
    }
}

impl ServerCertificate {
    /// As a TLS server uses it.
    pub fn certified_key(&self) -> Result<CertifiedKey, CaError> {
        let key = any_supported_type(&self.key).map_err(|error| CaError::Library(error.to_string()))?;
        Ok(CertifiedKey::new(self.chain.clone(), key))
    }
}

fn leaf(profile: &Profile) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name = DistinguishedName::new();
    let text = |name: &str| {
        let name = name.to_owned();
        name.clone().try_into().map_err(|_| CaError::Name(name))
    };
    match profile {
        Profile::Node { spiffe_uri } => {
            if !spiffe_uri.starts_with("spiffe://") {
                return Err(CaError::Name(spiffe_uri.clone()));
            }
            // Only the URI names a node: an empty subject cannot be mistaken for another name.
            params.subject_alt_names = vec![SanType::URI(text(spiffe_uri)?)];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
        Profile::Server { names, addresses } => {
            for name in names {
                if rustls::pki_types::DnsName::try_from(name.as_str()).is_err() {
                    return Err(CaError::Name(name.clone()));
                }
                params.subject_alt_names.push(SanType::DnsName(text(name)?));
            }
            params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
            if params.subject_alt_names.is_empty() {
                return Err(CaError::Name(String::new()));
            }
            params.distinguished_name.push(DnType::CommonName, "GPUaaS node listener");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
    }
    Ok(params)
}

/// The last second of the year 9999, which is as far as certificates can say.
const LAST_SECOND: u64 = 253_402_300_799;

pub(super) fn set_validity(
    params: &mut CertificateParams,
    not_before: DateTime<Utc>,
    not_after: DateTime<Utc>,
) -> Result<(), CaError> {
    let since_1970 = |at: DateTime<Utc>| {
        let seconds = u64::try_from(at.timestamp()).ok().filter(|seconds| *seconds <= LAST_SECOND);
        seconds.map(Duration::from_secs).ok_or(CaError::Validity(not_before, not_after))
    };
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970(not_before)?;
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(not_after)?;
    Ok(())
}
