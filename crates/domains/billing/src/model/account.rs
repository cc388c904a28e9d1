//! Accounts of the ledger, kinds of postings, and postings as they are written.

use kernel::ids::{AllocationId, OrgId, PostingId, ProjectId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

lifecycle::named_enum! {
    /// What a line is about. The first four are the organization's, the others the platform's.
    Account = "account of the ledger" as "LedgerAccount" {
        /// Money that can be spent.
        Prepaid = "prepaid",
        /// Set aside for what was launched.
        Held = "held",
        /// Credit that was given and not paid for.
        Promo = "promo",
        /// Frozen while a payment is disputed.
        Disputed = "disputed",
        Revenue = "revenue",
        /// Goes down by what was paid in.
        CashStripe = "cash_stripe",
        Refunds = "refunds",
        /// Goes down by what was given.
        CreditsGranted = "credits_granted",
    }
}

lifecycle::named_enum! {
    PostingKind = "kind of posting" {
        Topup = "topup",
        Usage = "usage",
        Hold = "hold",
        HoldRelease = "hold_release",
        Refund = "refund",
        Credit = "credit",
        Promo = "promo",
        Correction = "correction",
    }
}

/// One line: what an account gains (sources go down).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub account: Account,
    pub amount_minor: i64,
    pub project: Option<ProjectId>,
    pub allocation: Option<AllocationId>,
}

impl Line {
    pub const fn new(account: Account, amount_minor: i64) -> Self {
        Self { account, amount_minor, project: None, allocation: None }
    }
}

/// A posting to be made.
#[derive(Clone, Debug)]
pub struct Posting {
    pub org: OrgId,
    pub kind: PostingKind,
    /// What it is made for, outside of the ledger; of a kind, each reference is posted once.
    pub reference: Option<String>,
    pub reason: String,
    pub corrects: Option<PostingId>,
    pub lines: Vec<Line>,
}

/// What an organization has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Balances {
    pub prepaid_minor: i64,
    pub held_minor: i64,
    pub promo_minor: i64,
    pub disputed_minor: i64,
}

impl Balances {
    /// What new launches can be paid from.
    pub const fn available(self) -> i64 {
        self.prepaid_minor + self.promo_minor
    }

    /// All that is left to be used; what is frozen is not.
    pub const fn total(self) -> i64 {
        self.available() + self.held_minor
    }
}

/// A posting that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub id: PostingId,
    pub seq: i64,
    pub balances: Balances,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_frozen_is_not_left_to_be_used() {
        let balances = Balances { prepaid_minor: 1, held_minor: 20, promo_minor: 300, disputed_minor: 4000 };
        assert_eq!((balances.available(), balances.total()), (301, 321));
    }
}
