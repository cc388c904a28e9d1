//! Where books and world disagree. Found by comparing, looked at by people, never mended by the product.

use chrono::{DateTime, Utc};
use kernel::ids::{BillingFindingId, OrgId};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $suggestion:literal;)*) => {
        lifecycle::named_enum! {
            BillingFindingKind = "kind of billing finding" { $($(#[doc = $doc])* $variant = $name),* }
        }

        impl BillingFindingKind {
            /// What somebody who sees it can do.
            pub const fn suggestion(self) -> &'static str { match self { $(Self::$variant => $suggestion),* } }
        }
    };
}

kinds! {
    /// Something runs and is not paid for, or not any more.
    MissingOpenUsage = "missing_open_usage", "Check that a billing worker runs; if the allocation has no meter, release it or correct the ledger.";
    /// Something is paid for that does not run.
    OrphanOpenUsage = "orphan_open_usage", "Determine when the allocation ended, and credit the charges since then.";
    /// It ended and its last windows were not posted.
    UnbilledClosedUsage = "unbilled_closed_usage", "Check that a billing worker runs, and read its log.";
    /// A posting is not the sum of the usage that it stands for.
    LedgerUsageMismatch = "ledger_usage_mismatch", "Compare the posting with its usage records; post a correction.";
    /// What is set aside is not what the meters have left, or is set aside for a launch that never ends.
    HeldMismatch = "held_mismatch", "Check the launch of the meter; post a correction if money is still on hold.";
    /// A link of the chain does not fit.
    ChainBroken = "chain_broken", "The database was changed: verify the ledger, and compare it with the last signed checkpoint and your backups.";
    /// We have a payment that the provider does not have.
    ProviderMissing = "provider_missing", "Ask the provider about the payment.";
    /// The provider has a payment that we do not have.
    ProviderExtra = "provider_extra", "Check whether its webhook was received and processed.";
    /// Both have it, with other amounts.
    ProviderAmount = "provider_amount", "Compare the payment with the provider's record; post a correction.";
    /// It is not known whether the provider sent a refund.
    RefundUnknown = "refund_unknown", "Find the refund at the provider, then run `gpuaas platform billing refunds settle`.";
    /// The clock of a process is far from that of the database; the process does not accrue.
    ClockSkew = "clock_skew", "Set the clock of the host that the finding names (NTP), or that of the database.";
}

lifecycle::named_enum! {
    /// `resolved` when it was not seen any more.
    BillingFindingState = "state of a billing finding" { Open = "open", Resolved = "resolved" }
}

/// Where books and world disagree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BillingFinding {
    pub id: BillingFindingId,
    pub kind: BillingFindingKind,
    /// What it is about: a meter, an allocation, an organization or a posting of one.
    pub subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    /// What was seen.
    pub detail: Value,
    pub suggestion: String,
    pub state: BillingFindingState,
    pub first_seen_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<DateTime<Utc>>,
}

/// Something that was seen just now.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub subject: String,
    pub org: Option<OrgId>,
    pub detail: Value,
}
