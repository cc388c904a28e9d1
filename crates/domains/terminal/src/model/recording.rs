//! Recordings as people see them, and what a token says about recording.

use chrono::{DateTime, Utc};
use kernel::{
    Ambient,
    hex::Hex,
    ids::{AllocationId, OrgId, RecordingViewId, TerminalSessionId},
    policy::TerminalRecording,
    principal::PrincipalId,
};
use node_proto::grant::SignedGrant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::SealError;

use super::token::TerminalToken;

const BOUND_TO: &str = "terminal grant and recording";

/// What is to be recorded, decided by policy when the token was minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingOrder {
    pub org_id: OrgId,
    pub mode: TerminalRecording,
    pub retention_days: i64,
}

/// What a token for a terminal seals. A gateway that opens it knows what to record: whoever can write to the database can
/// neither forge it nor take it away, because without it there is no grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    pub grant: SignedGrant,
    pub recording: RecordingOrder,
}

impl Sealed {
    pub fn seal(&self, token: &TerminalToken, ambient: &Ambient) -> Result<Vec<u8>, SealError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        token.sealer()?.seal(ambient, BOUND_TO, &text)
    }

    pub fn open(token: &TerminalToken, sealed: &[u8]) -> Option<Self> {
        let text = token.sealer().ok()?.open(BOUND_TO, sealed).ok()?;
        serde_json::from_slice(text.expose()).ok()
    }
}

/// The recording of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionRecording {
    pub session_id: TerminalSessionId,
    pub allocation_id: AllocationId,
    /// Whose session it was.
    #[serde(rename = "created_by")]
    pub principal: PrincipalId,
    /// `output`, or `output_and_input`: what was typed, too.
    pub mode: TerminalRecording,
    pub started_at: DateTime<Utc>,
    /// Chunks in the object storage, as far as is known while it is not sealed.
    pub chunks: i64,
    /// How many bytes the session printed, as far as is known while it is not sealed.
    pub output_bytes: i64,
    /// What the chunks take in the object storage, or took before they were deleted.
    pub stored_bytes: i64,
    /// Absent while the session runs, and until its end was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed_at: Option<DateTime<Utc>>,
    /// What was found changed in the object storage by somebody else, as a code: `chunk_edited`, `seal_signature_invalid`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tampering: Option<String>,
    /// Whether all output of the session is there; known when it is sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Its objects are deleted then.
    pub expires_at: DateTime<Utc>,
    /// When its objects were deleted. What else is said here is from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<DateTime<Utc>>,
}

/// A key that seals recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordingKey {
    pub key_id: String,
    /// Ed25519.
    pub public_key: Hex,
}

/// The right to read the chunks of one recording for a while.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingView {
    pub id: RecordingViewId,
    pub session_id: TerminalSessionId,
    pub expires_at: DateTime<Utc>,
    /// With which this installation seals. Compare it with one that you got another way.
    pub key: RecordingKey,
}

/// A chunk, exactly as it is stored.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingChunk {
    pub index: i64,
    /// Base64.
    pub content: String,
}

/// Chunks in the order of their index.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordingChunks {
    pub items: Vec<RecordingChunk>,
    /// Where to go on; absent after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
    /// The seal, exactly as it is stored, after the last chunk; absent when the recording is not sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

#[cfg(test)]
mod tests {
    use node_proto::text::Base64;

    use super::*;

    #[test]
    fn what_is_to_be_recorded_opens_with_its_token_only() {
        let ambient = Ambient::system();
        let grant =
            SignedGrant { payload: Base64(vec![1]), signer_version: 1, signature: Base64(vec![2; 64]) };
        let recording = RecordingOrder {
            org_id: ambient.id(),
            mode: TerminalRecording::OutputAndInput,
            retention_days: 9,
        };
        let sealed = Sealed { grant: grant.clone(), recording };
        let (token, other) = (TerminalToken::random(&ambient), TerminalToken::random(&ambient));
        let bytes = sealed.seal(&token, &ambient).unwrap();
        assert_eq!(Sealed::open(&token, &bytes), Some(sealed));
        assert_eq!(Sealed::open(&other, &bytes), None);
        // A grant that was sealed without an order is none for a terminal.
        assert_eq!(Sealed::open(&token, &token.seal(&ambient, &grant).unwrap()), None);
    }
}
