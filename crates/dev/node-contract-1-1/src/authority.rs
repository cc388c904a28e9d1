//! What the gateway gives to nodes: certificates, trust, and signatures of tasks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::{DateTime, TimeDelta, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, PublicKeyData as _, SanType,
};
use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};

use crate::{
    messages::{
        Base64, IssuedCertificate, Keyset, SignedKeyset, SignedTask, SignerKey, SignerState, Task, Trust,
        TrustedAuthority,
    },
    tls::{hex, sha256},
};

pub(crate) struct Authority {
    pub id: String,
    pub root_sha256: String,
    root_pem: String,
    /// Of certificates.
    lifetime: TimeDelta,
    issuer: Issuer<'static, KeyPair>,
    keyset_key: Ed25519KeyPair,
    /// The last one signs; the first one has version 1.
    signers: Mutex<Vec<Ed25519KeyPair>>,
    /// What was given for a key, by its digest.
    given: Mutex<BTreeMap<String, IssuedCertificate>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Authority {
    /// And how its listener proves itself and asks nodes to.
    pub fn new(id: String, lifetime: TimeDelta) -> (Self, ServerConfig) {
        let ca_key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = ca.self_signed(&ca_key).expect("a root");
        let issuer = Issuer::new(ca, ca_key);
        let server_key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let server = server.signed_by(&server_key, &issuer).expect("a certificate");

        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let chain = vec![server.der().clone(), root.der().clone()];
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS")
            .with_client_cert_verifier(clients.allow_unauthenticated().build().expect("a verifier"))
            .with_single_cert(chain, PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key"))
            .expect("a certificate and its key");
        tls.alpn_protocols = vec![b"h2".to_vec()];

        let authority = Self {
            id,
            root_sha256: sha256(root.der()),
            root_pem: root.pem(),
            lifetime,
            issuer,
            keyset_key: Ed25519KeyPair::generate().expect("a key"),
            signers: Mutex::new(vec![Ed25519KeyPair::generate().expect("a key")]),
            given: Mutex::default(),
        };
        (authority, tls)
    }

    /// The public key, in hex, that signs the list of signers.
    pub fn keyset_key(&self) -> String {
        hex(self.keyset_key.public_key().as_ref())
    }

    pub fn change_signer(&self) {
        lock(&self.signers).push(Ed25519KeyPair::generate().expect("a key"));
    }

    pub fn keyset_serial(&self) -> u64 {
        u64::try_from(lock(&self.signers).len()).expect("few")
    }

    pub fn sign(&self, task: Task) -> SignedTask {
        let signers = lock(&self.signers);
        let signer_version = u32::try_from(signers.len()).expect("few");
        SignedTask::sign(&Task { signer_version, ..task }, signers.last().expect("a signer"))
    }

    /// The digest of the key, and what was given for it. The same key gets the same certificate: the answer may have
    /// been lost.
    pub fn certificate(
        &self,
        node: &str,
        csr_pem: &str,
        not_before: DateTime<Utc>,
    ) -> (String, IssuedCertificate) {
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).expect("a request");
        let key = sha256(csr.public_key.der_bytes());
        if let Some(given) = lock(&self.given).get(&key) {
            return (key, given.clone());
        }
        let uri = format!("spiffe://gpuaas.test/node/{node}");
        csr.params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("a name"))];
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let not_after = not_before + self.lifetime;
        let time = |at: DateTime<Utc>| {
            rcgen::date_time_ymd(1970, 1, 1)
                + Duration::from_secs(u64::try_from(at.timestamp()).expect("after 1970"))
        };
        (csr.params.not_before, csr.params.not_after) = (time(not_before), time(not_after));
        let certificate = csr.signed_by(&self.issuer).expect("a certificate");
        let chain_pem = format!("{}{}", certificate.pem(), self.root_pem);
        let given = IssuedCertificate { chain_pem, not_before, not_after };
        lock(&self.given).insert(key.clone(), given.clone());
        (key, given)
    }

    pub fn trust(&self, issued_at: DateTime<Utc>) -> Trust {
        let signers = lock(&self.signers);
        let serial = u64::try_from(signers.len()).expect("few");
        let signers = (1..).zip(signers.iter()).map(|(signer_version, key)| {
            let is_last = u64::from(signer_version) == serial;
            let state = if is_last { SignerState::Active } else { SignerState::Grace };
            SignerKey { signer_version, state, public_key: Base64(key.public_key().as_ref().to_vec()) }
        });
        let keyset = Keyset { serial, issued_at, signers: signers.collect() };
        let authority = TrustedAuthority { id: self.id.clone(), root_pem: self.root_pem.clone() };
        Trust { authorities: vec![authority], keyset: SignedKeyset::sign(&keyset, &self.keyset_key) }
    }
}
