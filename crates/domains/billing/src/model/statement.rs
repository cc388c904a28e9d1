//! The statement of a month: where the balance began, what moved it, and where it ended.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, ProjectId};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    account::{Balances, PostingKind},
    meter::MeterUnit,
    particulars::{Buyer, Seller, Tax},
    report::Month,
};

/// What the accounts of the organization gained in the month, by what for; losses are less than zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Changes {
    pub topups_minor: i64,
    pub usage_minor: i64,
    pub credits_minor: i64,
    pub promo_minor: i64,
    pub refunds_minor: i64,
    pub corrections_minor: i64,
    /// Holds and their release move money between the organization's own accounts: always zero.
    pub holds_minor: i64,
}

impl Changes {
    pub const fn total(self) -> i64 {
        self.topups_minor
            + self.usage_minor
            + self.credits_minor
            + self.promo_minor
            + self.refunds_minor
            + self.corrections_minor
            + self.holds_minor
    }

    /// Adds what a kind of posting gained.
    pub fn add(&mut self, kind: PostingKind, amount_minor: i64) {
        let place = match kind {
            PostingKind::Topup => &mut self.topups_minor,
            PostingKind::Usage => &mut self.usage_minor,
            PostingKind::Credit => &mut self.credits_minor,
            PostingKind::Promo => &mut self.promo_minor,
            PostingKind::Refund => &mut self.refunds_minor,
            PostingKind::Correction => &mut self.corrections_minor,
            PostingKind::Hold | PostingKind::HoldRelease => &mut self.holds_minor,
        };
        *place += amount_minor;
    }

    /// Each with the words that people read.
    pub const fn named(self) -> [(&'static str, i64); 7] {
        [
            ("Top-ups", self.topups_minor),
            ("Usage", self.usage_minor),
            ("Credits", self.credits_minor),
            ("Promotional credit", self.promo_minor),
            ("Refunds", self.refunds_minor),
            ("Corrections", self.corrections_minor),
            ("Holds, net", self.holds_minor),
        ]
    }
}

/// What a project used of a product.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct StatementUsage {
    pub project_id: ProjectId,
    /// Absent when the project is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub project_name: Option<String>,
    pub sku: String,
    /// Absent when the product is not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub product_name: Option<String>,
    pub unit: MeterUnit,
    pub unit_seconds: i64,
    pub amount_minor: i64,
}

/// A posting that is neither usage nor a hold.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct StatementMovement {
    pub seq: i64,
    pub posted_at: DateTime<Utc>,
    pub kind: PostingKind,
    pub reason: String,
    pub amount_minor: i64,
    /// When it is about one allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllocationId")]
    pub allocation_id: Option<AllocationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub allocation_name: Option<String>,
}

/// Movements that a statement shows one by one; the sums hold all.
pub const MOST_MOVEMENTS: i64 = 500;

/// The statement of a month (UTC): what was posted in it. Opening, plus changes, is closing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Statement {
    /// One series for the seller without a gap; absent until the month has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub number: Option<String>,
    /// When it got its number; seller, buyer and tax are as they were then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub issued_at: Option<DateTime<Utc>>,
    pub org_id: OrgId,
    pub buyer: Buyer,
    /// Absent when the installation names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Seller")]
    pub seller: Option<Seller>,
    /// On what was charged for use; absent when the installation configures none. The ledger does not know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tax")]
    pub tax: Option<Tax>,
    pub month: Month,
    pub currency: String,
    /// The month is not over: the statement will change.
    pub provisional: bool,
    /// How far into the ledger it looks.
    pub through_seq: i64,
    pub opening: Balances,
    pub opening_minor: i64,
    pub changes: Changes,
    pub closing: Balances,
    pub closing_minor: i64,
    /// By project and product; sums to what was charged.
    pub usage: Vec<StatementUsage>,
    /// Everything else that moved the balance, in order.
    pub movements: Vec<StatementMovement>,
    /// How many movements are not shown one by one.
    pub movements_left_out: i64,
}

/// A month of which there is a statement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StatementSummary {
    /// Absent until the month has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub number: Option<String>,
    pub month: Month,
    pub currency: String,
    pub provisional: bool,
    pub opening_minor: i64,
    pub closing_minor: i64,
}

/// All that the organization has, frozen money too.
pub const fn whole(balances: Balances) -> i64 {
    balances.total() + balances.disputed_minor
}

/// As people quote it.
pub fn number_text(number: i64) -> String {
    format!("S-{number:06}")
}

#[cfg(test)]
mod tests {
    use super::number_text;

    #[test]
    fn a_number_has_six_digits_or_more() {
        assert_eq!([1, 123_456, 1_234_567].map(number_text), ["S-000001", "S-123456", "S-1234567"]);
    }
}
