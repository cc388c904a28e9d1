//! What this process may do with the keys that sign work for nodes.

use std::sync::Arc;

use fleet::authority::Signing;
use trust::signer::{CustodyError, FileCustody, KeyCustody, KeysetKey, PublicKey, Signature};

use crate::{config::Config, roles::Role};

/// Opens the custody only where work is queued. A gateway gets the public key that lists of signers are checked with;
/// whoever has nothing to do with nodes gets nothing.
pub fn open(config: &Config) -> Result<Signing, CustodyError> {
    if config.roles.iter().any(|role| role.signs()) {
        return Ok(Signing::Custody(Arc::new(FileCustody::open(&config.trust.signing_dir)?)));
    }
    if config.roles.iter().any(|role| matches!(role, Role::NodeGateway | Role::NodeLogGateway)) {
        return Ok(Signing::Checks(KeysetKey::load(&config.trust.keyset_key_file)?));
    }
    Ok(none())
}

/// No keys, and so no signatures.
pub fn none() -> Signing {
    Signing::Custody(Arc::new(NoKeys))
}

struct NoKeys;

impl KeyCustody for NoKeys {
    fn generate(&self, version: u32) -> Result<PublicKey, CustodyError> {
        Err(CustodyError::Missing(version))
    }
    fn sign(&self, version: u32, _: &[u8]) -> Result<Signature, CustodyError> {
        Err(CustodyError::Missing(version))
    }
    fn destroy(&self, _: u32) -> Result<(), CustodyError> {
        Ok(())
    }
    fn keyset_public(&self) -> PublicKey {
        [0; 32]
    }
    fn sign_keyset(&self, _: u64, _: &[u8]) -> Result<Signature, CustodyError> {
        Err(CustodyError::Missing(0))
    }
    fn highest_serial(&self) -> Result<u64, CustodyError> {
        Ok(0)
    }
}
