//! SHA-256 where the product names content by its digest.

use sha2::{Digest as _, Sha256};

pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes.as_ref()).into()
}

/// The digest of a value's JSON form: what the audit trail records of a resource before and after.
pub fn of_json(value: &impl serde::Serialize) -> Result<[u8; 32], serde_json::Error> {
    serde_json::to_vec(value).map(sha256)
}
