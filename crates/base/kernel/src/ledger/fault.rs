//! What can be wrong with a chain.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{OrgId, PostingId};

/// The first thing that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LedgerFault")]
pub struct Fault {
    pub org_id: OrgId,
    /// The posting, by its place in the chain.
    pub seq: i64,
    /// The line of it, when one line is bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i32>,
    /// The posting's id, when it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<PostingId>,
    pub reason: FaultReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LedgerFaultReason")]
pub enum FaultReason {
    /// Its content does not give its hash.
    Changed,
    /// It does not follow the posting before it.
    Unlinked,
    /// It is missing.
    Removed,
    /// It stands where none belongs.
    Inserted,
    /// The lines give another digest than the posting has.
    LinesChanged,
    /// The lines do not sum to zero.
    Unbalanced,
    /// The balances do not follow from those before and the lines.
    BalancesWrong,
    /// The head of the chain does not match the last posting.
    HeadMismatch,
    /// The reference that prevents a second posting for the same cause is missing.
    ReferenceMissing,
    /// The checkpoint's signature is not valid, or its key is not trusted.
    CheckpointForged,
    /// The posting is another than the one that was signed.
    CheckpointMismatch,
    /// A checkpoint of this posting is missing.
    CheckpointRemoved,
    /// A checkpoint without a signed posting.
    CheckpointInserted,
}

impl FaultReason {
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Changed => "its content was changed after it was written",
            Self::Unlinked => "its previous hash is not the hash of the posting before it",
            Self::Removed => "it is missing",
            Self::Inserted => "it is unexpected at this position",
            Self::LinesChanged => "its lines were changed after it was written",
            Self::Unbalanced => "its lines do not sum to zero",
            Self::BalancesWrong => "its balances do not follow from those before and its lines",
            Self::HeadMismatch => "the head of the chain does not match the last posting",
            Self::ReferenceMissing => "its reference is missing, so its cause could be posted twice",
            Self::CheckpointForged => "the checkpoint was changed, or signed with a key that is not trusted",
            Self::CheckpointMismatch => "its hash is not the signed one: the chain was rewritten",
            Self::CheckpointRemoved => "its checkpoint is missing",
            Self::CheckpointInserted => "an unexpected checkpoint",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ledger of {}, posting {}", self.org_id, self.seq)?;
        if let Some(id) = self.id {
            write!(f, " ({id})")?;
        }
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.reason.explain())
    }
}
