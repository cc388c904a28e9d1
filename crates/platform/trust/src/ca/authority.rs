//! One generation of the authority: made, sealed, opened.

use chrono::{DateTime, Months, TimeDelta, Utc};
use kernel::{Ambient, Secret, ids::AuthorityId};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroize as _;

use super::{CaError, Root, Serial, issue::set_validity};
use crate::{SealError, Sealer, pem};

const PURPOSE: &[u8] = b"certificate authority";
const ROOT_YEARS: u32 = 10;
const INTERMEDIATE_YEARS: u32 = 2;
/// Clocks of nodes may be behind by so much when a new generation reaches them.
const BACKDATED: TimeDelta = TimeDelta::hours(1);
const FORMAT: u8 = 1;

/// Seals and opens authorities.
pub fn sealer(master_key: &Secret<[u8; 32]>) -> Result<Sealer, SealError> {
    Sealer::for_purpose(master_key, PURPOSE)
}

/// A private key that is wiped when it is dropped.
pub(super) struct Key(pub KeyPair);

impl Key {
    fn generate() -> Result<Self, CaError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    fn read(pkcs8: &[u8]) -> Result<Self, CaError> {
        let pair =
            KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ECDSA_P256_SHA256)?;
        Ok(Self(pair))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

pub struct Authority {
    id: AuthorityId,
    root: CertificateDer<'static>,
    root_key: Key,
    pub(super) intermediate: CertificateDer<'static>,
    pub(super) issuing_key: Key,
    not_after: DateTime<Utc>,
}

impl Authority {
    /// A new root and a new intermediate. The id stands in their names, so that generations never look alike.
    pub fn generate(ambient: &Ambient, trust_domain: &str, id: AuthorityId) -> Result<Self, CaError> {
        let not_before = ambient.now() - BACKDATED;
        let (root_key, issuing_key) = (Key::generate()?, Key::generate()?);
        let root = params(ambient, trust_domain, "root", id, 1, (not_before, ROOT_YEARS))?;
        let intermediate = params(ambient, trust_domain, "issuing", id, 0, (not_before, INTERMEDIATE_YEARS))?;
        let root_certificate = root.self_signed(&root_key.0)?;
        let intermediate =
            intermediate.signed_by(&issuing_key.0, &Issuer::from_params(&root, &root_key.0))?;
        Self::from_parts(id, root_certificate.into(), root_key, intermediate.into(), issuing_key)
    }

    fn from_parts(
        id: AuthorityId,
        root: CertificateDer<'static>,
        root_key: Key,
        intermediate: CertificateDer<'static>,
        issuing_key: Key,
    ) -> Result<Self, CaError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&intermediate)
            .map_err(|error| CaError::Library(error.to_string()))?;
        let not_after = DateTime::from_timestamp(parsed.validity().not_after.timestamp(), 0)
            .ok_or_else(|| CaError::Library("the intermediate has no end".to_owned()))?;
        Ok(Self { id, root, root_key, intermediate, issuing_key, not_after })
    }

    /// Certificates and keys together, for this id only.
    pub fn seal(&self, ambient: &Ambient, sealer: &Sealer) -> Result<Vec<u8>, CaError> {
        let parts: [&[u8]; 4] = [
            &self.root,
            self.root_key.0.serialized_der(),
            &self.intermediate,
            self.issuing_key.0.serialized_der(),
        ];
        let mut plain = vec![FORMAT];
        for part in parts {
            let length = u32::try_from(part.len()).map_err(|error| CaError::Library(error.to_string()))?;
            plain.extend_from_slice(&length.to_be_bytes());
            plain.extend_from_slice(part);
        }
        let sealed = sealer.seal(ambient, &bound_to(self.id), &plain);
        plain.zeroize();
        sealed.map_err(|_| CaError::Library("sealing failed".to_owned()))
    }

    pub fn open(sealer: &Sealer, id: AuthorityId, sealed: &[u8]) -> Result<Self, CaError> {
        let plain = sealer.open(&bound_to(id), sealed).map_err(|_| CaError::Sealed(id))?;
        let mut rest = plain.expose().strip_prefix(&[FORMAT]).ok_or(CaError::Sealed(id))?;
        let mut next = || -> Option<&[u8]> {
            let (length, tail) = rest.split_first_chunk::<4>()?;
            let (part, tail) = tail.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
            rest = tail;
            Some(part)
        };
        let (Some(root), Some(root_key), Some(intermediate), Some(issuing_key)) =
            (next(), next(), next(), next())
        else {
            return Err(CaError::Sealed(id));
        };
        Self::from_parts(
            id,
            CertificateDer::from(root.to_vec()),
            Key::read(root_key)?,
            CertificateDer::from(intermediate.to_vec()),
            Key::read(issuing_key)?,
        )
    }

    pub const fn id(&self) -> AuthorityId {
        self.id
    }

    pub fn root(&self) -> Root {
        Root { authority_id: self.id, der: self.root.clone() }
    }

    pub fn root_pem(&self) -> String {
        pem::certificate(&self.root)
    }

    pub fn issuing_pem(&self) -> String {
        pem::certificate(&self.intermediate)
    }

    pub fn issuing_fingerprint(&self) -> [u8; 32] {
        kernel::digest::sha256(&self.intermediate)
    }

    /// When the intermediate ends: nothing that was issued counts for longer.
    pub const fn not_after(&self) -> DateTime<Utc> {
        self.not_after
    }
}

fn bound_to(id: AuthorityId) -> String {
    format!("authority:{id}")
}

fn params(
    ambient: &Ambient,
    trust_domain: &str,
    role: &str,
    id: AuthorityId,
    below: u8,
    (not_before, years): (DateTime<Utc>, u32),
) -> Result<CertificateParams, CaError> {
    let not_after = not_before
        .checked_add_months(Months::new(12 * years))
        .ok_or(CaError::Validity(not_before, not_before))?;
    let mut params = CertificateParams::default();
    set_validity(&mut params, not_before, not_after)?;
    params.serial_number = Some(SerialNumber::from_slice(Serial::random(ambient).bytes()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, trust_domain);
    params.distinguished_name.push(DnType::CommonName, format!("GPUaaS {role} {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
