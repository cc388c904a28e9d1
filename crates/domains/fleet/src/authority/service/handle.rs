//! What others ask of the trust in force.

use std::{net::IpAddr, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Failure, Problem, Secret,
    ids::{AuthorityId, NodeId},
};
use node_proto::{
    Keyset, SignedKeyset, SignedTask, Task,
    contract::{self, JoinInfo, TrustedAuthority, spiffe_id},
    grant::{self, Grant, SignedGrant},
    task::signing_bytes,
    text::Base64,
};
use trust::{
    SealError,
    ca::{self, Issued, Serial, ServerCertificate, Validity},
    peer::PeerVerifier,
};

use super::super::{
    Trust, TrustError,
    model::{authority::AuthorityState, keyset},
};

/// The listener's certificate begins a little early, for nodes whose clocks are behind.
pub(crate) const BACKDATED: TimeDelta = TimeDelta::minutes(5);

impl Trust {
    /// The generation that issues.
    pub async fn issuing(&self) -> Result<Arc<ca::Authority>, Failure> {
        let snapshot = self.snapshot().await?;
        let active = snapshot.authorities.iter().find(|known| known.state == AuthorityState::Active);
        let active = active.map(|known| known.authority.clone());
        Ok(active.ok_or_else(|| unavailable("No certificate authority is active."))?)
    }

    /// Checks peers against the roots in force.
    pub async fn verifier(&self) -> Result<Arc<PeerVerifier>, Failure> {
        Ok(self.snapshot().await?.verifier.clone())
    }

    /// Whether certificates of that generation still count; for peers that were checked earlier.
    pub async fn believes(&self, authority: AuthorityId) -> Result<bool, Failure> {
        Ok(self.snapshot().await?.verifier.authorities().contains(&authority))
    }

    /// The roots in force, as nodes are told them.
    pub async fn roots(&self) -> Result<Vec<TrustedAuthority>, Failure> {
        let snapshot = self.snapshot().await?;
        let root = |a: &ca::Authority| TrustedAuthority { id: a.id(), root_pem: a.root_pem() };
        Ok(snapshot.authorities.iter().map(|known| root(&known.authority)).collect())
    }

    /// The list of signers in force, checked against the pinned key.
    pub async fn keyset(&self) -> Result<(Keyset, SignedKeyset), Failure> {
        let checked = self.snapshot().await?.keyset.clone();
        let checked = checked.ok_or_else(|| unavailable("No keyset is active."))?;
        Ok((checked.keyset.clone(), checked.signed.clone()))
    }

    /// Everything that a node believes.
    pub async fn for_nodes(&self) -> Result<contract::Trust, Failure> {
        let (_, keyset) = self.keyset().await?;
        Ok(contract::Trust { authorities: self.roots().await?, keyset })
    }

    /// What a node must know before it can enrol.
    pub async fn join_info(&self, node: NodeId, hostname: &str, url: &str) -> Result<JoinInfo, Failure> {
        let snapshot = self.snapshot().await?;
        let print = |a: &ca::Authority| kernel::hex::Hex(a.root().fingerprint().to_vec()).to_string();
        Ok(JoinInfo {
            node_id: node,
            hostname: hostname.to_owned(),
            url: url.to_owned(),
            root_sha256: snapshot.authorities.iter().map(|known| print(&known.authority)).collect(),
            keyset_key: self.keyset_key().hex(),
        })
    }

    /// What a joining node pins, in hex: the digest of each root in force, and the key that signs lists of signers.
    pub async fn pins(&self) -> Result<(Vec<String>, String), Failure> {
        let snapshot = self.snapshot().await?;
        let print = |a: &ca::Authority| kernel::hex::encode(&a.root().fingerprint());
        let roots = snapshot.authorities.iter().map(|known| print(&known.authority)).collect();
        Ok((roots, self.keyset_key().hex()))
    }

    /// Signs with the active signer. `task.signer_version` is set here.
    pub async fn sign_task(&self, mut task: Task) -> Result<SignedTask, Failure> {
        let (keyset, signer_version) = self.active_signer().await?;
        task.signer_version = signer_version;
        let payload = task.canonical()?;
        let signature = self.signature(signer_version, &signing_bytes(&payload))?;
        let signed = SignedTask { payload: Base64(payload), signer_version, signature };
        // Nodes would refuse it; better here than there.
        signed.open(&keyset).map_err(|_| TrustError::ForeignKey(signer_version))?;
        Ok(signed)
    }

    /// Signs with the active signer. `grant.signer_version` is set here.
    pub(crate) async fn sign_grant(&self, mut grant: Grant) -> Result<SignedGrant, Failure> {
        let (keyset, signer_version) = self.active_signer().await?;
        grant.signer_version = signer_version;
        let payload = grant.canonical()?;
        let signature = self.signature(signer_version, &grant::signing_bytes(&payload))?;
        let signed = SignedGrant { payload: Base64(payload), signer_version, signature };
        signed.open(&keyset).map_err(|_| TrustError::ForeignKey(signer_version))?;
        Ok(signed)
    }

    async fn active_signer(&self) -> Result<(Keyset, u32), Failure> {
        let (keyset, _) = self.keyset().await?;
        let version = keyset::active(&keyset).ok_or_else(|| unavailable("No signer is active."))?;
        Ok((keyset, version))
    }

    fn signature(&self, signer_version: u32, bytes: &[u8]) -> Result<Base64, Failure> {
        Ok(Base64(self.custody()?.sign(signer_version, bytes)?.to_vec()))
    }

    /// Seals a work order for `subject`.
    pub fn order_seal(&self, subject: &str, order: &[u8]) -> Result<Vec<u8>, SealError> {
        self.0.orders.seal(self.0.db.ambient(), subject, order)
    }

    pub fn order_open(&self, subject: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, SealError> {
        self.0.orders.open(subject, sealed)
    }

    /// A certificate for a node, from now on. Why a request was refused may be told.
    pub async fn issue_node(
        &self,
        csr_pem: &str,
        node: NodeId,
        lifetime: TimeDelta,
    ) -> Result<Issued, Failure> {
        let (authority, validity) = (self.issuing().await?, self.validity(lifetime));
        let serial = Serial::random(self.0.db.ambient());
        let uri = spiffe_id(&self.0.domain, node);
        let issued = authority.issue_node(csr_pem, &uri, serial, validity.not_before, validity.not_after);
        issued.map_err(|error| match error {
            ca::CaError::Request | ca::CaError::RequestSignature | ca::CaError::KeyKind => {
                Problem::field("csr_pem", error).into()
            }
            other => Failure::from(other),
        })
    }

    /// A certificate for the node listener, with its key.
    pub async fn issue_server(
        &self,
        names: &[String],
        addresses: &[IpAddr],
        lifetime: TimeDelta,
    ) -> Result<ServerCertificate, Failure> {
        let serial = Serial::random(self.0.db.ambient());
        let authority = self.issuing().await?;
        Ok(authority.issue_server(names, addresses, serial, self.validity(lifetime))?)
    }

    fn validity(&self, lifetime: TimeDelta) -> Validity {
        let now: DateTime<Utc> = self.0.db.ambient().now();
        Validity { not_before: now - BACKDATED, not_after: now + lifetime }
    }
}

fn unavailable(text: &'static str) -> Problem {
    Problem::new(Code::ServiceUnavailable, text)
        .suggest("See the log of the control plane for errors of its authorities and signers.")
}
