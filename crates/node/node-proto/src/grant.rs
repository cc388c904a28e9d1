//! The right to open one stream to a node, as it is signed, and the checks of the node.
//!
//! A grant is signed by the signer of tasks, in the request of a person or a service account. A gateway carries it and
//! cannot make one: neither the database, the bus nor a gateway opens anything on a node.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, GrantId, NodeId, TerminalSessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Keyset, canonical, keyset::SignatureError, task::CLOCK_TOLERANCE, text::Base64};

/// What precedes the signed bytes, so that a signature cannot be taken for one of another kind.
pub const GRANT_CONTEXT: &[u8] = b"gpuaas grant v1\n";

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// A terminal, in frames.
    Pty,
    /// The bytes of a TCP connection.
    Tcp,
    /// Log lines.
    Log,
}

/// Whose machine a stream leads into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(inline)]
pub enum Owner {
    Allocation {
        allocation_id: AllocationId,
    },
    /// The node itself.
    Node,
}

/// As the port of [`Target::Tcp`]: the SSH server of the machine, wherever it listens there. Only its agent knows that: where
/// clients reach it directly, an address or a port may have been translated.
pub const SSH_PORT: u16 = 22;

/// What is opened there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(inline)]
pub enum Target {
    /// A shell of the owner.
    Pty(PtyTarget),
    /// A port of the owner's machine, on its loopback address.
    Tcp {
        port: u16,
        /// The stream ends so long after it was opened, whatever happens. The node has a limit of its own besides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_seconds: Option<u32>,
    },
    /// A log of the node: so many recent lines, then new ones.
    Log { source: String, lines: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PtyTarget {
    pub session_id: TerminalSessionId,
    pub access: PtyAccess,
    /// Whether a session that is not there is started. One that somebody attached to before is not: its output is lost.
    pub may_start: bool,
    /// The session ends so long after its start, whatever happens. The node has a limit of its own besides.
    pub ttl_seconds: u32,
    /// The session ends when nobody typed and nothing was printed for so long.
    pub idle_seconds: u32,
    /// Gateways record what they send to somebody who asked to write: the node sends others no more than that. The grant that
    /// starts a session says it for all of its life.
    #[serde(default)]
    pub recorded: bool,
}

/// What a stream may do with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PtyAccess {
    /// Type and resize, if nobody else does.
    Write,
    /// Type and resize; whoever did before is detached.
    TakeOver,
    /// See what is printed.
    Watch,
    /// End the session.
    End,
}

impl Target {
    pub const fn kind(&self) -> StreamKind {
        match self {
            Self::Pty(_) => StreamKind::Pty,
            Self::Tcp { .. } => StreamKind::Tcp,
            Self::Log { .. } => StreamKind::Log,
        }
    }
}

/// All that is signed. Fields may be added; none may change its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    pub grant_id: GrantId,
    pub node_id: NodeId,
    pub owner: Owner,
    pub target: Target,
    /// Who asked.
    pub actor: String,
    /// Worth one stream.
    pub single_use: bool,
    pub issued_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub correlation_id: Uuid,
    pub signer_version: u32,
}

/// A grant on its way: the signed bytes themselves, so that reading cannot differ from signing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedGrant {
    /// The canonical bytes of a [`Grant`].
    pub payload: Base64,
    pub signer_version: u32,
    /// By the signer's key, over the context and the payload.
    pub signature: Base64,
}

/// Why a grant is refused. Nothing was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GrantError {
    #[error("the signer is not among those that this node believes")]
    UnknownSigner,
    #[error("the signature does not fit the grant")]
    BadSignature,
    #[error("the grant cannot be read")]
    Malformed,
    #[error("the grant is for another node")]
    WrongNode,
    #[error("the grant has expired")]
    Expired,
    #[error("the grant was issued in the future")]
    NotYetValid,
    #[error("the grant was issued before this agent started, and may have been used")]
    Superseded,
    #[error("the grant was used already")]
    Replayed,
    #[error("more grants were used than this node can remember")]
    TooMany,
}

/// The bytes that a signature of `payload` covers.
pub fn signing_bytes(payload: &[u8]) -> Vec<u8> {
    [GRANT_CONTEXT, payload].concat()
}

impl Grant {
    pub fn canonical(&self) -> Result<Vec<u8>, serde_json::Error> {
        canonical::encode(self)
    }
}

impl SignedGrant {
    /// Checks the signature and reads. Nothing else is checked: see [`SignedGrant::accept`].
    pub fn open(&self, keyset: &Keyset) -> Result<Grant, GrantError> {
        keyset.verify(self.signer_version, &signing_bytes(&self.payload.0), &self.signature.0).map_err(
            |error| match error {
                SignatureError::UnknownSigner => GrantError::UnknownSigner,
                SignatureError::BadSignature => GrantError::BadSignature,
            },
        )?;
        let grant: Grant = canonical::decode(&self.payload.0).ok_or(GrantError::Malformed)?;
        if grant.signer_version == self.signer_version { Ok(grant) } else { Err(GrantError::Malformed) }
    }

    /// Signature, addressee and time. Whether it was used already, the node knows.
    pub fn accept(&self, keyset: &Keyset, node: NodeId, now: DateTime<Utc>) -> Result<Grant, GrantError> {
        let grant = self.open(keyset)?;
        if grant.node_id != node {
            return Err(GrantError::WrongNode);
        }
        if grant.expires_at + CLOCK_TOLERANCE <= now {
            return Err(GrantError::Expired);
        }
        if grant.issued_at > now + CLOCK_TOLERANCE {
            return Err(GrantError::NotYetValid);
        }
        Ok(grant)
    }
}
