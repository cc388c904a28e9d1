//! A certificate authority and the signers, for tests.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{digest::sha256, hex::Hex, ids::NodeId};
use node_proto::{
    Keyset, SignedKeyset, SignedTask, SignerKey, SignerState, Task, canonical,
    contract::{IssuedCertificate, Trust, TrustedAuthority, spiffe_id},
    keyset, task,
    text::Base64,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub fn ed25519() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
}

fn time(at: DateTime<Utc>) -> std::time::SystemTime {
    at.into()
}

pub struct Authority {
    pub id: kernel::ids::AuthorityId,
    pub root: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
    pub keyset_key: Ed25519KeyPair,
    pub signers: Vec<(u32, Ed25519KeyPair)>,
}

impl Authority {
    pub fn new(now: DateTime<Utc>) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = time(now - TimeDelta::days(1)).into();
        params.not_after = time(now + TimeDelta::days(3650)).into();
        let root = params.self_signed(&key).unwrap();
        let id =
            uuid::Uuid::from_u128(u128::from_le_bytes(sha256(root.der())[..16].try_into().unwrap())).into();
        Self {
            id,
            root,
            issuer: Issuer::new(params, key),
            keyset_key: ed25519(),
            signers: vec![(1, ed25519())],
        }
    }

    pub fn root_sha256(&self) -> String {
        Hex(sha256(self.root.der()).to_vec()).to_string()
    }

    pub fn keyset_key_hex(&self) -> String {
        Hex(self.keyset_key.public_key().as_ref().to_vec()).to_string()
    }

    /// A server certificate; the chain ends with the root itself.
    pub fn server(
        &self,
        name: &str,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (time(from).into(), time(to).into());
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone(), self.root.der().clone()], key)
    }

    pub fn issue(
        &self,
        csr_pem: &str,
        node: NodeId,
        from: DateTime<Utc>,
        life: TimeDelta,
    ) -> IssuedCertificate {
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let uri = spiffe_id("test", node).as_str().try_into().unwrap();
        csr.params.subject_alt_names = vec![SanType::URI(uri)];
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        csr.params.not_before = time(from).into();
        csr.params.not_after = time(from + life).into();
        let certificate = csr.signed_by(&self.issuer).unwrap();
        IssuedCertificate { chain_pem: certificate.pem(), not_before: from, not_after: from + life }
    }

    pub fn keyset(&self, serial: u64, now: DateTime<Utc>) -> SignedKeyset {
        self.keyset_signed_by(&self.keyset_key, serial, now)
    }

    pub fn keyset_signed_by(&self, key: &Ed25519KeyPair, serial: u64, now: DateTime<Utc>) -> SignedKeyset {
        let signers = self.signers.iter().map(|(version, key)| SignerKey {
            signer_version: *version,
            state: SignerState::Active,
            public_key: Base64(key.public_key().as_ref().to_vec()),
        });
        let document =
            canonical::encode(&Keyset { serial, issued_at: now, signers: signers.collect() }).unwrap();
        let signature = key.sign(&keyset::signing_bytes(&document)).as_ref().to_vec();
        SignedKeyset { document: Base64(document), signature: Base64(signature) }
    }

    pub fn trust(&self, serial: u64, now: DateTime<Utc>) -> Trust {
        let authorities = vec![TrustedAuthority { id: self.id, root_pem: self.root.pem() }];
        Trust { authorities, keyset: self.keyset(serial, now) }
    }

    pub fn sign(&self, task: &Task) -> SignedTask {
        let (_, key) = self.signers.iter().find(|(version, _)| *version == task.signer_version).unwrap();
        sign_with(key, task)
    }
}

pub fn sign_with(key: &Ed25519KeyPair, task: &Task) -> SignedTask {
    let payload = task.canonical().unwrap();
    let signature = key.sign(&task::signing_bytes(&payload)).as_ref().to_vec();
    SignedTask { payload: Base64(payload), signer_version: task.signer_version, signature: Base64(signature) }
}
