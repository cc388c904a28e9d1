//! What the node believes: the roots of the control plane, and the list of signers.

use kernel::{digest::sha256, hex::Hex, ids::AuthorityId};
use node_proto::{
    Keyset, SignedKeyset,
    contract::{Trust, TrustedAuthority},
};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::IdentityError;
use crate::transport::{Believed, certificates};

/// As it is kept. The key of the list of signers was pinned when the node joined, and never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTrust {
    pub authorities: Vec<TrustedAuthority>,
    pub keyset: SignedKeyset,
    pub keyset_key: Hex,
}

/// Checked and ready for use.
#[derive(Clone)]
pub struct TrustInForce {
    pub stored: StoredTrust,
    pub keyset: Keyset,
    roots: Vec<CertificateDer<'static>>,
}

const MOST_AUTHORITIES: usize = 16;

impl TrustInForce {
    pub fn open(stored: StoredTrust) -> Result<Self, IdentityError> {
        let keyset = stored.keyset.open(&stored.keyset_key.0)?;
        Self::from_stored(stored, keyset)
    }

    fn from_stored(stored: StoredTrust, keyset: Keyset) -> Result<Self, IdentityError> {
        if stored.authorities.is_empty() || stored.authorities.len() > MOST_AUTHORITIES {
            return Err(IdentityError::Trust("the number of authorities makes no sense".to_owned()));
        }
        let mut roots = Vec::new();
        for authority in &stored.authorities {
            let found = certificates(&authority.root_pem)
                .map_err(|error| IdentityError::Trust(format!("authority {}: {error}", authority.id)))?;
            roots.extend(found.into_iter().take(1));
        }
        Ok(Self { stored, keyset, roots })
    }

    /// What the control plane says is in force now. The list of signers must be signed by the pinned key and
    /// not be older than the one that the node has.
    pub fn newer(&self, told: Trust) -> Result<Self, IdentityError> {
        let keyset = told.keyset.open_newer(&self.stored.keyset_key.0, &self.keyset)?;
        let stored = StoredTrust {
            authorities: told.authorities,
            keyset: told.keyset,
            keyset_key: self.stored.keyset_key.clone(),
        };
        Self::from_stored(stored, keyset)
    }

    pub fn believed(&self) -> Believed {
        Believed::Roots(self.roots.clone())
    }

    pub fn root_digests(&self) -> Vec<[u8; 32]> {
        self.roots.iter().map(sha256).collect()
    }

    /// In order, so that two lists can be compared.
    pub fn authority_ids(&self) -> Vec<AuthorityId> {
        let mut ids: Vec<_> = self.stored.authorities.iter().map(|authority| authority.id).collect();
        ids.sort_unstable();
        ids
    }
}
