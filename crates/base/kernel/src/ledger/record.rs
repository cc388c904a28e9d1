//! Heads, postings, lines and checkpoints, with their canonical form: numbers and times (microseconds since 2000)
//! big-endian, text with its length before it, and a byte that says whether something optional is there.

use chrono::{DateTime, NaiveDate, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    digest::sha256,
    hex::{self, Hex},
    ids::{AllocationId, MeterId, OrgId, PostingId, ProjectId},
    principal::PrincipalId,
};

/// From the Unix epoch to 2000, where Postgres counts from.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const CHECKPOINT: &[u8] = b"gpuaas-ledger-checkpoint:1\n";

/// Where a chain ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LedgerHead")]
pub struct Head {
    pub org_id: OrgId,
    /// ISO 4217.
    pub currency: String,
    /// The last posting; 0 when there is none.
    pub seq: i64,
    pub hash: Hex,
    /// The posting that was signed last; 0 when none was.
    pub checkpoint_seq: i64,
}

impl Head {
    pub fn empty(org_id: OrgId, currency: impl Into<String>) -> Self {
        Self {
            org_id,
            currency: currency.into(),
            seq: 0,
            hash: Hex(genesis(org_id).to_vec()),
            checkpoint_seq: 0,
        }
    }
}

/// One entry of an organization's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LedgerPosting")]
pub struct Posting {
    pub id: PostingId,
    pub org_id: OrgId,
    /// Its place in the chain.
    pub seq: i64,
    pub posted_at: DateTime<Utc>,
    /// `topup`, `usage`, `hold`, `hold_release`, `refund`, `credit`, `promo` or `correction`.
    pub kind: String,
    pub currency: String,
    /// What it was made for, outside of the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects_entry_id: Option<PostingId>,
    /// `user`, `service_account` or `system`.
    pub actor_kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<PrincipalId>,
    pub correlation_id: Uuid,
    /// How many lines it has.
    pub lines: i32,
    pub lines_digest: Hex,
    pub prepaid_after_minor: i64,
    pub held_after_minor: i64,
    pub promo_after_minor: i64,
    pub disputed_after_minor: i64,
    pub prev_hash: Hex,
    pub hash: Hex,
}

/// What an account gained by a posting; the sources go down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LedgerLine")]
pub struct Line {
    /// The posting it belongs to.
    pub seq: i64,
    pub line: i32,
    pub posted_at: DateTime<Utc>,
    /// `prepaid`, `held`, `promo`, `disputed`, `revenue`, `cash_stripe`, `refunds` or `credits_granted`.
    pub account: String,
    pub amount_minor: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_instance_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meter_id: Option<MeterId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_start: Option<DateTime<Utc>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_end: Option<DateTime<Utc>>,
    pub correlation_id: Uuid,
    pub leaf: Hex,
}

/// A signed head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LedgerCheckpoint")]
pub struct Checkpoint {
    pub org_id: OrgId,
    pub day: NaiveDate,
    /// What the checkpoint before signed; 0 for the first.
    pub prev_seq: i64,
    pub seq: i64,
    pub hash: Hex,
    pub signed_at: DateTime<Utc>,
    pub key_id: String,
    /// Ed25519.
    pub public_key: Hex,
    pub signature: Hex,
}

/// Where a chain starts from.
pub fn genesis(org: OrgId) -> [u8; 32] {
    sha256(format!("gpuaas-ledger:{}", org.uuid()))
}

/// The digest of a posting's lines, from their leaves in order.
pub fn digest<'a>(leaves: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    sha256(leaves.into_iter().collect::<Vec<_>>().concat())
}

/// How a public key is named.
pub fn key_id(public_key: &[u8]) -> String {
    hex::encode(sha256(public_key).get(..8).unwrap_or_default())
}

struct Canonical(Vec<u8>);

impl Canonical {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        // Nothing that a chain holds is 2 GiB long; the length is cut as it would be there.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        self.bytes(&length.to_be_bytes()).bytes(text.as_bytes())
    }

    fn number(self, number: i64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    fn time(self, at: DateTime<Utc>) -> Self {
        self.number(at.timestamp_micros().saturating_sub(EPOCH_MICROS))
    }

    fn uuid(self, id: Uuid) -> Self {
        self.bytes(id.as_bytes())
    }

    fn maybe<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => put(self.bytes(&[1]), value),
            None => self.bytes(&[0]),
        }
    }
}

impl Posting {
    /// What `hash` must be when this posting follows one whose hash is `previous`.
    pub fn expected_hash(&self, previous: &[u8]) -> [u8; 32] {
        let bytes = Canonical(Vec::with_capacity(512))
            .bytes(previous)
            .bytes(&[1])
            .uuid(self.org_id.uuid())
            .number(self.seq)
            .time(self.posted_at)
            .uuid(self.id.uuid())
            .text(&self.kind)
            .text(&self.currency)
            .maybe(self.reference.as_deref(), Canonical::text)
            .text(&self.reason)
            .maybe(self.corrects_entry_id.map(PostingId::uuid), Canonical::uuid)
            .text(&self.actor_kind)
            .maybe(self.actor_id.map(PrincipalId::uuid), Canonical::uuid)
            .uuid(self.correlation_id)
            .bytes(&self.lines.to_be_bytes())
            .bytes(&self.lines_digest.0)
            .number(self.prepaid_after_minor)
            .number(self.held_after_minor)
            .number(self.promo_after_minor)
            .number(self.disputed_after_minor);
        sha256(bytes.0)
    }

    /// In the order of [`Line::balance`].
    pub(super) const fn balances(&self) -> [i64; 4] {
        [self.prepaid_after_minor, self.held_after_minor, self.promo_after_minor, self.disputed_after_minor]
    }
}

impl Line {
    /// What `leaf` must be.
    pub fn expected_leaf(&self) -> [u8; 32] {
        let bytes = Canonical(Vec::with_capacity(160))
            .bytes(&self.line.to_be_bytes())
            .text(&self.account)
            .number(self.amount_minor)
            .maybe(self.project_id.map(ProjectId::uuid), Canonical::uuid)
            .maybe(self.allocation_id.map(AllocationId::uuid), Canonical::uuid)
            .maybe(self.app_instance_id, Canonical::uuid)
            .maybe(self.meter_id.map(MeterId::uuid), Canonical::uuid)
            .maybe(self.window_start, Canonical::time)
            .maybe(self.window_end, Canonical::time)
            .uuid(self.correlation_id);
        sha256(bytes.0)
    }

    /// Which balance of the organization it moves; none when the account is the platform's.
    pub(super) fn balance(&self) -> Option<usize> {
        ["prepaid", "held", "promo", "disputed"].iter().position(|account| *account == self.account)
    }
}

impl Checkpoint {
    /// What is signed.
    pub fn message(&self) -> Vec<u8> {
        Canonical(CHECKPOINT.to_vec())
            .uuid(self.org_id.uuid())
            .text(&self.day.to_string())
            .number(self.prev_seq)
            .number(self.seq)
            .bytes(&self.hash.0)
            .time(self.signed_at)
            .text(&self.key_id)
            .0
    }
}
