//! The audit trail's hash chain, checked without a database: by the service on its own rows, and by
//! anybody on an export.
//!
//! Each chain starts from a hash of its organization's id; each row's hash covers the hash before it and
//! the row's canonical form (the same as `audit_append` in the database builds: every field as
//! `length:text,`, or `-,` when absent; form 1, or form 2 with the count of a row that stands for repeats). Rows are
//! numbered from 1 without gaps, and the head (number and hash of the last row) is kept apart, so that a changed,
//! removed, inserted or cut-off row is found.
//!
//! An export is NDJSON: one `{"head": …}` line per chain, then the chain's rows in order.

use std::{fmt, fmt::Write as _};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    digest::sha256,
    ids::{AuditId, OrgId, ProjectId, UserId},
};
pub use crate::{hex::Hex, principal::PrincipalId};

/// One row of the audit trail; one line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditRecord {
    pub id: AuditId,
    /// The chain; absent for the platform's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    pub seq: i64,
    pub at: DateTime<Utc>,
    /// `user`, `service_account`, `system` or `anonymous`.
    pub actor_kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<PrincipalId>,
    pub actor_role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<UserId>,
    pub action: String,
    pub target_kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// `allowed` or `refused`.
    pub result: String,
    /// The error code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub correlation_id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_digest: Option<Hex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_digest: Option<Hex>,
    /// Of a refusal: the row stands for this many more of the same principal, action and code within a minute, after the
    /// first, which has a row of its own. The rest of the row is about the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<i64>,
    pub prev_hash: Hex,
    pub hash: Hex,
}

fn field(out: &mut String, text: Option<&dyn fmt::Display>) {
    // Writing to a String cannot fail.
    let _ = match text.map(ToString::to_string) {
        Some(text) => write!(out, "{}:{text},", text.len()),
        None => out.write_str("-,"),
    };
}

fn shown<T: fmt::Display>(value: &Option<T>) -> Option<&dyn fmt::Display> {
    value.as_ref().map(|v| v as &dyn fmt::Display)
}

impl AuditRecord {
    fn canonical(&self) -> String {
        let org = chain_uuid(self.org_id);
        let form = if self.repeats.is_none() { "1" } else { "2" };
        let mut out = String::with_capacity(512);
        for value in [
            Some(&form as &dyn fmt::Display),
            Some(&self.id.uuid()),
            Some(&org),
            Some(&self.seq),
            Some(&self.at.timestamp_micros()),
            Some(&self.actor_kind),
            shown(&self.actor_id.map(PrincipalId::uuid)),
            Some(&self.actor_role),
            shown(&self.on_behalf_of.map(UserId::uuid)),
            Some(&self.action),
            Some(&self.target_kind),
            shown(&self.target_id),
            shown(&self.project_id.map(ProjectId::uuid)),
            Some(&self.result),
            shown(&self.code),
            Some(&self.correlation_id),
            shown(&self.source_ip),
            shown(&self.before_digest),
            shown(&self.after_digest),
        ] {
            field(&mut out, value);
        }
        if self.repeats.is_some() {
            field(&mut out, shown(&self.repeats));
        }
        out
    }

    /// What `hash` must be when this row follows one whose hash is `previous`.
    pub fn expected_hash(&self, previous: &[u8]) -> [u8; 32] {
        let mut bytes = previous.to_vec();
        bytes.extend_from_slice(self.canonical().as_bytes());
        sha256(bytes)
    }
}

/// The platform's own chain has the nil UUID.
fn chain_uuid(org: Option<OrgId>) -> Uuid {
    org.map_or(Uuid::nil(), OrgId::uuid)
}

/// Where a chain starts from.
pub fn genesis(org: Option<OrgId>) -> [u8; 32] {
    sha256(format!("gpuaas-audit:{}", chain_uuid(org)))
}

/// Number and hash of a chain's last row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChainHead {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    pub seq: i64,
    pub hash: Hex,
}

impl ChainHead {
    pub fn empty(org_id: Option<OrgId>) -> Self {
        Self { org_id, seq: 0, hash: Hex(genesis(org_id).to_vec()) }
    }
}

/// The first thing that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChainFault {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    /// The first bad row, by its place in the chain.
    pub seq: i64,
    /// Its id, when there is such a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<AuditId>,
    pub reason: FaultReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultReason {
    /// The row's content does not give the row's hash.
    Changed,
    /// The row does not follow the one before it.
    Unlinked,
    /// A row is missing at this place.
    Removed,
    /// A row stands where none belongs.
    Inserted,
    /// The head does not name the last row.
    HeadMismatch,
}

impl FaultReason {
    pub const fn explain(self) -> &'static str {
        match self {
            Self::Changed => "its content was changed after it was written",
            Self::Unlinked => "its previous hash is not the hash of the row before it",
            Self::Removed => "the row is missing",
            Self::Inserted => "an unexpected row",
            Self::HeadMismatch => "the head of the chain has another hash",
        }
    }
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.org_id {
            Some(org) => write!(f, "chain of {org}, ")?,
            None => f.write_str("platform chain, ")?,
        }
        write!(f, "row {}", self.seq)?;
        if let Some(id) = self.id {
            write!(f, " ({id})")?;
        }
        write!(f, ": {}", self.reason.explain())
    }
}

/// Walks one chain in order, keeping only the last hash.
#[derive(Clone, Debug)]
pub struct ChainVerifier {
    org_id: Option<OrgId>,
    seq: i64,
    hash: Vec<u8>,
}

impl ChainVerifier {
    pub fn new(org_id: Option<OrgId>) -> Self {
        Self { org_id, seq: 0, hash: genesis(org_id).to_vec() }
    }

    /// How many rows were found good.
    pub fn rows(&self) -> i64 {
        self.seq
    }

    fn fault(&self, seq: i64, id: Option<AuditId>, reason: FaultReason) -> ChainFault {
        ChainFault { org_id: self.org_id, seq, id, reason }
    }

    pub fn check(&mut self, record: &AuditRecord) -> Result<(), ChainFault> {
        let next = self.seq + 1;
        if record.org_id != self.org_id || record.seq < next {
            return Err(self.fault(record.seq, Some(record.id), FaultReason::Inserted));
        }
        if record.seq > next {
            return Err(self.fault(next, None, FaultReason::Removed));
        }
        if record.prev_hash.0 != self.hash {
            return Err(self.fault(next, Some(record.id), FaultReason::Unlinked));
        }
        if record.expected_hash(&self.hash)[..] != record.hash.0 {
            return Err(self.fault(next, Some(record.id), FaultReason::Changed));
        }
        self.seq = next;
        self.hash.clone_from(&record.hash.0);
        Ok(())
    }

    /// Compares what was walked with the head that was kept apart.
    pub fn finish(&self, head: &ChainHead) -> Result<(), ChainFault> {
        if head.seq > self.seq {
            return Err(self.fault(self.seq + 1, None, FaultReason::Removed));
        }
        if head.seq < self.seq {
            return Err(self.fault(head.seq + 1, None, FaultReason::Inserted));
        }
        if head.hash.0 != self.hash {
            return Err(self.fault(self.seq, None, FaultReason::HeadMismatch));
        }
        Ok(())
    }
}

/// One line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExportLine {
    Head { head: ChainHead },
    Record(Box<AuditRecord>),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExportFault {
    #[error("line {line} is neither a row nor a head; export again, or restore the original file")]
    Unreadable { line: usize },
    #[error("line {line} comes before any head line; export again, or restore the original file")]
    Headless { line: usize },
    #[error("the file is empty; export again")]
    Empty,
    #[error("{0}")]
    Chain(ChainFault),
}

/// Checks an export line by line, in bounded memory.
#[derive(Debug, Default)]
pub struct ExportVerifier {
    current: Option<(ChainHead, ChainVerifier)>,
    line: usize,
    chains: u64,
    rows: u64,
}

/// What was found good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    pub chains: u64,
    pub rows: u64,
}

impl ExportVerifier {
    pub fn line(&mut self, text: &str) -> Result<(), ExportFault> {
        self.line += 1;
        if text.trim().is_empty() {
            return Ok(());
        }
        let line = serde_json::from_str(text).map_err(|_| ExportFault::Unreadable { line: self.line })?;
        match line {
            ExportLine::Head { head } => {
                self.end_chain()?;
                let verifier = ChainVerifier::new(head.org_id);
                self.current = Some((head, verifier));
            }
            ExportLine::Record(record) => {
                let Some((_, verifier)) = &mut self.current else {
                    return Err(ExportFault::Headless { line: self.line });
                };
                verifier.check(&record).map_err(ExportFault::Chain)?;
                self.rows += 1;
            }
        }
        Ok(())
    }

    fn end_chain(&mut self) -> Result<(), ExportFault> {
        if let Some((head, verifier)) = self.current.take() {
            verifier.finish(&head).map_err(ExportFault::Chain)?;
            self.chains += 1;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Verified, ExportFault> {
        if self.current.is_none() {
            return Err(ExportFault::Empty);
        }
        self.end_chain()?;
        Ok(Verified { chains: self.chains, rows: self.rows })
    }
}

#[cfg(test)]
#[path = "audit_chain_tests.rs"]
mod tests;
