//! Joining, and being repaired: the same call.

use std::sync::Arc;

use kernel::{Ambient, Secret, hex::Hex};
use node_proto::contract::{EnrollRequest, JoinInfo};

use super::{Facts, FreshKey, Identity, IdentityError, IdentityStore, StoredTrust, TrustInForce};
use crate::{
    client::Client,
    transport::{Address, Believed, Connect, client_config},
};

/// What an operator hands over with the token, read.
pub struct Pins {
    pub roots: Vec<[u8; 32]>,
    pub keyset_key: [u8; 32],
}

impl Pins {
    pub fn read(join: &JoinInfo) -> Result<Self, IdentityError> {
        let hex = |name: &str, text: &str| -> Result<[u8; 32], IdentityError> {
            let read: Result<Hex, _> = serde_json::from_value(serde_json::Value::String(text.to_owned()));
            let bytes = read.ok().and_then(|hex| <[u8; 32]>::try_from(hex.0).ok());
            bytes.ok_or_else(|| IdentityError::Join(format!("{name} must have 64 hexadecimal digits")))
        };
        let roots: Result<Vec<_>, _> = join.root_sha256.iter().map(|text| hex("root-sha256", text)).collect();
        let roots = roots?;
        if roots.is_empty() {
            return Err(IdentityError::Join("at least one root-sha256 is needed".to_owned()));
        }
        Ok(Self { roots, keyset_key: hex("keyset-key", &join.keyset_key)? })
    }
}

/// Joins with a bootstrap or repair token, and keeps what comes back. Nothing is kept unless all of it is right.
pub async fn enroll<C: Connect>(
    connect: Arc<C>,
    ambient: &Ambient,
    store: &dyn IdentityStore,
    facts: &Facts,
    join: &JoinInfo,
    token: &Secret<String>,
) -> Result<Identity, IdentityError> {
    let mut pins = Pins::read(join)?;
    // What cannot be read any more is replaced; what can be read still binds.
    let before = store.load().ok().flatten();
    if let Some(before) = &before {
        if before.node_id() != join.node_id {
            return Err(IdentityError::Join(format!(
                "this state directory belongs to {}; use another one, or remove it",
                before.node_id()
            )));
        }
        pins.roots.extend(before.trust.root_digests());
    }
    let address = Address::parse(&join.url)?;
    let tls = client_config(ambient, &Believed::Pinned(pins.roots.clone()), None)?;
    let client = Client::new(connect, address, ambient.clone(), tls, join.node_id);
    let key = FreshKey::generate()?;
    let request = EnrollRequest {
        node_id: join.node_id,
        token: token.expose().clone(),
        csr_pem: key.csr_pem.clone(),
        hostname: join.hostname.clone(),
        agent_version: facts.agent_version.clone(),
        machine_id: facts.machine_id.clone(),
    };
    let enrolled = client.enroll(&request).await?;
    if enrolled.node_id != join.node_id {
        return Err(IdentityError::Join("the control plane answered for another node".to_owned()));
    }
    let certified = key.certified(&enrolled.certificate.chain_pem, join.node_id)?;
    let told = enrolled.trust;
    let stored = StoredTrust {
        authorities: told.authorities.clone(),
        keyset: told.keyset.clone(),
        keyset_key: Hex(pins.keyset_key.to_vec()),
    };
    let trust = TrustInForce::open(stored)?;
    if !trust.root_digests().iter().any(|root| pins.roots.contains(root)) {
        return Err(IdentityError::Trust("no pinned root is among the authorities".to_owned()));
    }
    if let Some(before) = before.filter(|before| before.trust.stored.keyset_key == trust.stored.keyset_key) {
        before.trust.newer(told)?;
    }
    // The roots that are in force now are what a later repair may rely on.
    let join = JoinInfo {
        root_sha256: trust.root_digests().iter().map(|root| Hex(root.to_vec()).to_string()).collect(),
        ..join.clone()
    };
    store.save_joined(&join, &certified.pair, &trust.stored)?;
    Ok(Identity { join, certified, trust })
}
