//! The keys that sign work for nodes, and the key that signs the list of them.
//!
//! Both are Ed25519 and lie outside the database: whoever can write there can neither sign work nor say which
//! signers are believed. A process that only hands out signed work needs the public half of the list's key
//! ([`KeysetKey`]) and nothing else.
//!
//! Making a key and committing what the database says about it cannot be one step. So making is repeatable (the
//! same version gives the same key until it is destroyed), a key without a row is harmless, and a key is
//! destroyed only after the list without it was committed.

mod file;
mod files;

use std::path::PathBuf;

use aws_lc_rs::signature::ED25519_PUBLIC_KEY_LEN;

pub use file::{FileCustody, KeysetKey};

pub type PublicKey = [u8; ED25519_PUBLIC_KEY_LEN];
pub type Signature = [u8; 64];

#[derive(Debug, thiserror::Error)]
pub enum CustodyError {
    #[error("{path}: {doing} failed")]
    Io { path: PathBuf, doing: &'static str, source: std::io::Error },
    #[error("{path} is open to others (mode {mode:o}); run: chmod {wanted:o} {path}")]
    Permissions { path: PathBuf, mode: u32, wanted: u32 },
    #[error(
        "{path} belongs to user {owner}, not to the one that runs this process ({expected}); run: chown {expected} {path}"
    )]
    Owner { path: PathBuf, owner: u32, expected: u32 },
    #[error("{path} is not {expected}")]
    Kind { path: PathBuf, expected: &'static str },
    #[error("{path} does not hold a key; restore it from a backup")]
    Content { path: PathBuf },
    #[error("the signing key of version {0} is not here; restore it from a backup, or rotate to a new one")]
    Missing(u32),
    #[error("a key cannot be made")]
    Make,
}

/// Where signing keys live. Calls do not wait for anything but a local disk or device: they are made inside
/// database transactions.
pub trait KeyCustody: Send + Sync {
    /// Makes the key of that version, or finds the one that was made before.
    fn generate(&self, version: u32) -> Result<PublicKey, CustodyError>;
    fn sign(&self, version: u32, bytes: &[u8]) -> Result<Signature, CustodyError>;
    /// Forgets the key for good. Nothing happens when it is not there.
    fn destroy(&self, version: u32) -> Result<(), CustodyError>;
    /// The key that nodes pin.
    fn keyset_public(&self) -> PublicKey;
    /// Signs a list of signers, and remembers its serial when it is the highest.
    fn sign_keyset(&self, serial: u64, bytes: &[u8]) -> Result<Signature, CustodyError>;
    /// The highest serial that was ever signed: a database that was restored from a backup knows less.
    fn highest_serial(&self) -> Result<u64, CustodyError>;
}
