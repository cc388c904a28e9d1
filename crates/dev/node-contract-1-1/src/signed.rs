//! Signatures of 1.1: what was signed, how it was spelt, and what was checked.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::messages::{Base64, Keyset, RefusalReason, SignedKeyset, SignedTask, Task};

const TASK_CONTEXT: &[u8] = b"gpuaas task v1\n";
const KEYSET_CONTEXT: &[u8] = b"gpuaas keyset v1\n";
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

/// JSON without spaces, keys sorted.
pub fn canonical(value: &impl Serialize) -> Vec<u8> {
    let value = serde_json::to_value(value).expect("JSON");
    serde_json::to_vec(&sorted(value)).expect("JSON")
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    if canonical(&value) == bytes { serde_json::from_value(value).ok() } else { None }
}

fn sign(key: &Ed25519KeyPair, context: &[u8], bytes: &[u8]) -> Base64 {
    Base64(key.sign(&[context, bytes].concat()).as_ref().to_vec())
}

fn is_signed(key: &[u8], context: &[u8], bytes: &[u8], signature: &Base64) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&[context, bytes].concat(), &signature.0).is_ok()
}

impl SignedKeyset {
    pub fn sign(keyset: &Keyset, key: &Ed25519KeyPair) -> Self {
        let document = canonical(keyset);
        Self { signature: sign(key, KEYSET_CONTEXT, &document), document: Base64(document) }
    }

    /// Nothing when the pinned key did not sign it, or when it is older than `serial`.
    pub fn open(&self, pinned: &[u8], serial: u64) -> Option<Keyset> {
        let signed = is_signed(pinned, KEYSET_CONTEXT, &self.document.0, &self.signature);
        read::<Keyset>(&self.document.0).filter(|keyset| signed && keyset.serial >= serial)
    }
}

impl SignedTask {
    pub fn sign(task: &Task, key: &Ed25519KeyPair) -> Self {
        let payload = canonical(task);
        let signature = sign(key, TASK_CONTEXT, &payload);
        Self { payload: Base64(payload), signer_version: task.signer_version, signature }
    }

    /// All that a node of 1.1 checked before it looked at the type of work. `since` is when its journal began.
    pub fn accept(
        &self,
        keyset: &Keyset,
        node: &str,
        now: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<Task, RefusalReason> {
        let signer = keyset.signers.iter().find(|signer| signer.signer_version == self.signer_version);
        let signer = signer.ok_or(RefusalReason::UnknownSigner)?;
        if !is_signed(&signer.public_key.0, TASK_CONTEXT, &self.payload.0, &self.signature) {
            return Err(RefusalReason::BadSignature);
        }
        let task: Task = read(&self.payload.0).ok_or(RefusalReason::Malformed)?;
        match () {
            () if task.signer_version != self.signer_version => Err(RefusalReason::Malformed),
            () if task.node_id != node => Err(RefusalReason::WrongNode),
            () if task.expires_at + CLOCK_TOLERANCE <= now => Err(RefusalReason::Expired),
            () if task.issued_at > now + CLOCK_TOLERANCE => Err(RefusalReason::NotYetValid),
            () if task.issued_at + CLOCK_TOLERANCE < since => Err(RefusalReason::NotYetValid),
            () => Ok(task),
        }
    }
}
