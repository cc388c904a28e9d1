//! The signers that nodes believe, as one signed list.
//!
//! A node pins the list's signing key when it enrols. From then on it takes a newer list only with a
//! signature of that key and a higher serial: rotation needs no restart, and a writer of the database or a
//! foreign gateway cannot bring in a signer or bring back an old one.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{canonical, text::Base64};

/// What precedes the signed bytes, so that a signature cannot be taken for one of another kind.
pub const KEYSET_CONTEXT: &[u8] = b"gpuaas keyset v1\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignerState {
    /// Announced ahead of its first use, so that no node meets it unprepared.
    Staged,
    Active,
    /// No longer used for new work; what it signed before still counts.
    Grace,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignerKey {
    pub signer_version: u32,
    pub state: SignerState,
    /// Ed25519.
    pub public_key: Base64,
}

/// Retired and revoked signers are not in the list: they are not believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keyset {
    pub serial: u64,
    pub issued_at: DateTime<Utc>,
    pub signers: Vec<SignerKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedKeyset {
    /// The canonical bytes of a [`Keyset`].
    pub document: Base64,
    /// By the pinned key, over the context and the document.
    pub signature: Base64,
}

/// Why a signature is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureError {
    UnknownSigner,
    BadSignature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysetError {
    #[error("the list of signers is not signed by the pinned key")]
    BadSignature,
    #[error("the list of signers cannot be read")]
    Malformed,
    #[error("the list of signers is older than the one in force")]
    Older,
}

/// The bytes that a signature of `document` covers.
pub fn signing_bytes(document: &[u8]) -> Vec<u8> {
    [KEYSET_CONTEXT, document].concat()
}

impl SignedKeyset {
    /// Checks the signature against the pinned key, then reads.
    pub fn open(&self, pinned: &[u8]) -> Result<Keyset, KeysetError> {
        UnparsedPublicKey::new(&ED25519, pinned)
            .verify(&signing_bytes(&self.document.0), &self.signature.0)
            .map_err(|_| KeysetError::BadSignature)?;
        canonical::decode(&self.document.0).ok_or(KeysetError::Malformed)
    }

    /// The same, for a node that has `current` in force already.
    pub fn open_newer(&self, pinned: &[u8], current: &Keyset) -> Result<Keyset, KeysetError> {
        let next = self.open(pinned)?;
        if next.serial < current.serial { Err(KeysetError::Older) } else { Ok(next) }
    }
}

impl Keyset {
    /// Whether a signer of the list has signed the message, which begins with the context of its kind.
    pub fn verify(
        &self,
        signer_version: u32,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let key = self.public_key(signer_version).ok_or(SignatureError::UnknownSigner)?;
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(message, signature).map_err(|_| SignatureError::BadSignature)
    }

    pub fn public_key(&self, signer_version: u32) -> Option<&[u8]> {
        self.signers.iter().find(|key| key.signer_version == signer_version).map(|key| &key.public_key.0[..])
    }
}
