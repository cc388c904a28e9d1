//! SSH public keys: what is accepted, and in which form it is kept.
//!
//! One OpenSSH public key in one line, of a type that is safe today. Options (`command="…"`), certificates
//! and private keys are refused; the comment is dropped, because the key has a name of its own.

use chrono::{DateTime, Utc};
use kernel::{Code, Problem, ids::SshKeyId, policy::Setting};
use schemars::JsonSchema;
use serde::Serialize;
use ssh_key::{HashAlg, PublicKey, public::KeyData};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SshKey {
    pub id: SshKeyId,
    pub name: String,
    pub key_type: String,
    /// `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
    pub public_key: String,
    pub created_at: DateTime<Utc>,
}

/// A public key that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedKey {
    pub key_type: String,
    pub fingerprint: String,
    pub public_key: String,
}

pub const MAX_KEY_BYTES: usize = 16 * 1024;
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=16384;
const TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
];

pub fn check(text: &str) -> Result<CheckedKey, Problem> {
    check_text(text).map_err(|message| Problem::field("public_key", message))
}

pub(super) fn check_text(text: &str) -> Result<CheckedKey, String> {
    if text.len() > MAX_KEY_BYTES {
        return Err(format!("is longer than {MAX_KEY_BYTES} bytes"));
    }
    if text.contains("PRIVATE KEY") {
        return Err(
            "is a private key; send the public key (the file that ends in .pub), and treat the private key \
                    as compromised"
                .to_owned(),
        );
    }
    let line = text.trim();
    if line.chars().any(char::is_control) {
        return Err("must be one line".to_owned());
    }
    let key_type = line.split(' ').next().unwrap_or_default();
    if !TYPES.contains(&key_type) {
        return Err(format!("must begin with a key type ({}), without options before it", TYPES.join(", ")));
    }
    let key = PublicKey::from_openssh(line).map_err(|_| "is not a complete OpenSSH public key".to_owned())?;
    if let KeyData::Rsa(rsa) = key.key_data() {
        let bits = rsa.n.as_positive_bytes().map_or(0, bit_length);
        if !RSA_BITS.contains(&bits) {
            return Err(format!(
                "is an RSA key of {bits} bits; {} to {} are accepted, and ed25519 is better",
                RSA_BITS.start(),
                RSA_BITS.end()
            ));
        }
    }
    let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
    let public_key = PublicKey::new(key.key_data().clone(), "")
        .to_openssh()
        .map_err(|_| "is not a complete OpenSSH public key".to_owned())?;
    Ok(CheckedKey { key_type: key_type.to_owned(), fingerprint, public_key: public_key.trim().to_owned() })
}

fn bit_length(bytes: &[u8]) -> usize {
    let first = bytes.iter().position(|b| *b != 0).map(|at| &bytes[at..]).unwrap_or_default();
    first.first().map_or(0, |top| first.len() * 8 - top.leading_zeros() as usize)
}

/// May a person with `stored` keys store one more?
pub fn another_key(stored: i64, limit: Setting) -> Result<(), Problem> {
    if stored < limit.get() {
        return Ok(());
    }
    Err(Problem::new(Code::QuotaExceeded, "The maximum number of your SSH keys is reached.")
        .detail("limit", limit.get())
        .suggest("Delete a key that you no longer use."))
}

#[cfg(test)]
#[path = "ssh_key_tests.rs"]
mod tests;
