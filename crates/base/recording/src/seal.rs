//! The seal: what a recording consists of, signed when it ended.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use chrono::{DateTime, Utc};
use kernel::{hex::Hex, ids::TerminalSessionId, ledger::key_id};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{chunk::Gap, fault::Fault};

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];

/// Nothing else that is signed begins with it.
const CONTEXT: &[u8] = b"gpuaas-recording-seal-v1\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Format {
    #[serde(rename = "gpuaas-recording-seal/1")]
    V1,
}

/// What is sealed. The recorder makes it; it becomes a [`Seal`] when it is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    pub session_id: TerminalSessionId,
    pub chunks: u64,
    /// SHA-256 of the last chunk.
    pub head: Hex,
    /// How many bytes the session printed, lost ones included.
    pub end_sequence: u64,
    pub ended_at: DateTime<Utc>,
    /// Why the session ended, in the words of whoever recorded it.
    pub reason: String,
    /// Whether all output of the session is there.
    pub complete: bool,
    /// At most `GAPS_LISTED_MAX`.
    pub gaps: Vec<Gap>,
    /// The [`Fault::code`] of what was found changed in the storage before the recording was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tampering: Option<String>,
}

/// A signed statement, as it is stored beside the chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    format: Format,
    #[serde(flatten)]
    pub statement: Statement,
    pub key_id: String,
    /// Ed25519. Whoever verifies compares it with keys that did not come with the recording.
    pub public_key: Hex,
    pub signature: Hex,
}

impl Statement {
    /// Says what was found changed. Such a recording is not complete.
    #[must_use]
    pub fn with_tampering(mut self, code: Option<String>) -> Self {
        self.complete &= code.is_none();
        self.tampering = code;
        self
    }

    /// What is signed: numbers big-endian, text with its length before it, times in microseconds.
    fn message(&self, key_id: &str) -> Vec<u8> {
        let mut out = CONTEXT.to_vec();
        let number = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&number.to_be_bytes());
        let text = |out: &mut Vec<u8>, text: &[u8]| {
            number(out, text.len() as u64);
            out.extend_from_slice(text);
        };
        out.extend_from_slice(self.session_id.uuid().as_bytes());
        number(&mut out, self.chunks);
        text(&mut out, &self.head.0);
        number(&mut out, self.end_sequence);
        out.extend_from_slice(&self.ended_at.timestamp_micros().to_be_bytes());
        text(&mut out, self.reason.as_bytes());
        out.push(u8::from(self.complete));
        number(&mut out, self.gaps.len() as u64);
        for gap in &self.gaps {
            number(&mut out, gap.from);
            number(&mut out, gap.to);
        }
        text(&mut out, key_id.as_bytes());
        if let Some(tampering) = &self.tampering {
            text(&mut out, tampering.as_bytes());
        }
        out
    }

    pub fn sign(self, key: &Ed25519KeyPair) -> Seal {
        let public_key = key.public_key().as_ref();
        let key_id = key_id(public_key);
        let signature = Hex(key.sign(&self.message(&key_id)).as_ref().to_vec());
        Seal { format: Format::V1, statement: self, key_id, public_key: Hex(public_key.to_vec()), signature }
    }
}

impl Seal {
    /// The content of the object: one line of JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        (json!(self).to_string() + "\n").into_bytes()
    }

    /// Reads what [`Self::to_bytes`] gives, and nothing else.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let seal: Self = serde_json::from_slice(bytes).map_err(|_| Fault::SealUnreadable)?;
        if seal.to_bytes() == bytes { Ok(seal) } else { Err(Fault::SealUnreadable) }
    }

    /// Whether one of these keys signed it.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<(), Fault> {
        let key = keys.iter().find(|key| key.as_slice() == self.public_key.0);
        let unknown = || Fault::SealKeyUnknown { key_id: self.key_id.clone() };
        let key = key.filter(|key| self.key_id == key_id(key.as_slice())).ok_or_else(unknown)?;
        let message = self.statement.message(&self.key_id);
        let verified = UnparsedPublicKey::new(&ED25519, key).verify(&message, &self.signature.0);
        verified.map_err(|_| Fault::SealForged)
    }
}
