//! A posting as a list shows it: how much, in which direction, and what it was for. All of it follows from the posting, the
//! one before it and its lines; nothing of it is in the hashed ledger.

use kernel::{
    ids::{AllocationId, ProjectId},
    ledger::Posting,
    money::money,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::account::PostingKind;

lifecycle::named_enum! {
    /// As seen from the organization.
    LedgerDirection = "direction of a posting" {
        /// It has more than before.
        Credit = "credit",
        /// It has less than before.
        Debit = "debit",
        /// It has as much as before: money moved between its own accounts.
        Transfer = "transfer",
    }
}

/// An allocation that a posting is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LedgerAllocation")]
pub struct LedgerAllocation {
    pub allocation_id: AllocationId,
    /// Absent when it is not known any more; so are the other names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub allocation_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProjectId")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub project_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub sku: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub product_name: Option<String>,
    /// GPUs or nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub units: Option<i32>,
}

/// A posting in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LedgerItem {
    #[serde(flatten)]
    pub posting: Posting,
    /// What the accounts of the organization gained together; losses are less than zero.
    pub amount_minor: i64,
    pub direction: LedgerDirection,
    /// Of a transfer: how much moved to or from what can be spent, without a sign.
    pub moved_minor: i64,
    /// What it was for, in plain words.
    pub description: String,
    /// Allocations that it is about, at most eight.
    pub allocations: Vec<LedgerAllocation>,
    /// There are more; the lines of the posting have them all.
    pub more_allocations: bool,
}

/// What an organization had after a posting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedTotals {
    /// With what is set aside and what is frozen.
    pub whole_minor: i64,
    /// What can be spent.
    pub available_minor: i64,
}

impl PostedTotals {
    pub const fn of_posting(posting: &Posting) -> Self {
        let available_minor = posting.prepaid_after_minor + posting.promo_after_minor;
        let whole_minor = available_minor + posting.held_after_minor + posting.disputed_after_minor;
        Self { whole_minor, available_minor }
    }
}

impl LedgerItem {
    /// From the posting, what there was before it, and what it is about.
    pub fn new(
        posting: Posting,
        kind: PostingKind,
        before: PostedTotals,
        allocations: Vec<LedgerAllocation>,
        more_allocations: bool,
    ) -> Self {
        let after = PostedTotals::of_posting(&posting);
        let amount_minor = after.whole_minor.saturating_sub(before.whole_minor);
        let direction = match amount_minor {
            0 => LedgerDirection::Transfer,
            1.. => LedgerDirection::Credit,
            _ => LedgerDirection::Debit,
        };
        let moved = after.available_minor.saturating_sub(before.available_minor).saturating_abs();
        let moved_minor = if direction == LedgerDirection::Transfer { moved } else { 0 };
        let what = subject(&allocations, more_allocations);
        let description = describe(&posting, kind, moved_minor, what.as_deref());
        Self { posting, amount_minor, direction, moved_minor, description, allocations, more_allocations }
    }
}

fn describe(posting: &Posting, kind: PostingKind, moved_minor: i64, what: Option<&str>) -> String {
    let reason = posting.reason.as_str();
    let moved = money(moved_minor, &posting.currency);
    let about = |head: &str| match what {
        Some(what) => format!("{head}: {reason} ({what})"),
        None => format!("{head}: {reason}"),
    };
    match (kind, &posting.reference, what) {
        (PostingKind::Topup, Some(payment), _) => format!("Top-up, payment {payment}"),
        (PostingKind::Topup, None, _) => about("Top-up"),
        (PostingKind::Usage, _, Some(what)) => format!("Usage: {what}"),
        (PostingKind::Usage, _, None) => about("Usage"),
        (PostingKind::Hold, _, Some(what)) => format!("{moved} set aside for {what}"),
        (PostingKind::Hold, _, None) => format!("{moved} set aside: {reason}"),
        (PostingKind::HoldRelease, _, Some(what)) => format!("{moved} not used by {what}"),
        (PostingKind::HoldRelease, _, None) => format!("{moved} given back: {reason}"),
        (PostingKind::Refund, Some(refund), _) => format!("Refund {refund}: {reason}"),
        (PostingKind::Refund, None, _) => about("Refund"),
        (PostingKind::Credit, ..) => about("Credit"),
        (PostingKind::Promo, ..) => about("Promotional credit"),
        (PostingKind::Correction, ..) => about("Correction"),
    }
}

/// What a posting is about; nothing without allocations.
fn subject(allocations: &[LedgerAllocation], more: bool) -> Option<String> {
    let name =
        |one: &LedgerAllocation| one.allocation_name.clone().unwrap_or_else(|| one.allocation_id.to_string());
    match allocations {
        [] => None,
        [one] if !more => {
            let product = one.product_name.as_ref().or(one.sku.as_ref());
            let machine = match (one.units, product) {
                (Some(units), Some(product)) => format!("{units} × {product}, "),
                _ => String::new(),
            };
            let project =
                one.project_name.as_ref().map(|name| format!(" in project {name}")).unwrap_or_default();
            Some(format!("{machine}allocation {}{project}", name(one)))
        }
        some => {
            let names: Vec<String> = some.iter().map(name).collect();
            let more = if more { " and others" } else { "" };
            Some(format!("allocations {}{more}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use uuid::Uuid;

    use super::*;

    fn posting(kind: PostingKind, prepaid: i64, held: i64, reference: Option<&str>) -> Posting {
        Posting {
            id: Uuid::nil().into(),
            org_id: Uuid::nil().into(),
            seq: 2,
            posted_at: DateTime::UNIX_EPOCH,
            kind: lifecycle::Named::name(kind).to_owned(),
            currency: "USD".to_owned(),
            reference: reference.map(str::to_owned),
            reason: "because".to_owned(),
            corrects_entry_id: None,
            actor_kind: "system".to_owned(),
            actor_id: None,
            correlation_id: Uuid::nil(),
            lines: 2,
            lines_digest: kernel::hex::Hex(Vec::new()),
            prepaid_after_minor: prepaid,
            held_after_minor: held,
            promo_after_minor: 0,
            disputed_after_minor: 0,
            prev_hash: kernel::hex::Hex(Vec::new()),
            hash: kernel::hex::Hex(Vec::new()),
        }
    }

    fn train(name: &str) -> LedgerAllocation {
        LedgerAllocation {
            allocation_id: Uuid::nil().into(),
            allocation_name: Some(name.to_owned()),
            project_id: None,
            project_name: Some("training".to_owned()),
            sku: Some("h200".to_owned()),
            product_name: None,
            units: Some(8),
        }
    }

    #[test]
    fn what_is_set_aside_and_frozen_is_had_but_not_available() {
        let posting = Posting {
            promo_after_minor: 20,
            disputed_after_minor: 3,
            ..posting(PostingKind::Usage, 500, 7, None)
        };
        let totals = PostedTotals { whole_minor: 530, available_minor: 520 };
        assert_eq!(PostedTotals::of_posting(&posting), totals);
    }

    #[test]
    fn one_of_several_allocations_is_not_named_as_if_it_was_the_only_one() {
        let (alone, with_more) = (subject(&[train("a")], false), subject(&[train("a")], true));
        assert_eq!(alone.as_deref(), Some("8 × h200, allocation a in project training"));
        assert_ne!(with_more, alone);
    }

    const BEFORE: PostedTotals = PostedTotals { whole_minor: 1_000, available_minor: 1_000 };

    fn item(kind: PostingKind, after: (i64, i64), about: Vec<LedgerAllocation>, more: bool) -> LedgerItem {
        LedgerItem::new(posting(kind, after.0, after.1, None), kind, BEFORE, about, more)
    }

    #[test]
    fn an_amount_is_what_the_organization_gained_and_a_transfer_gains_nothing() {
        let shown = |item: LedgerItem| (item.amount_minor, item.direction, item.moved_minor);
        let used = item(PostingKind::Usage, (900, 0), vec![train("train-1")], false);
        assert_eq!(used.description, "Usage: 8 × h200, allocation train-1 in project training");
        assert_eq!(shown(used), (-100, LedgerDirection::Debit, 0));
        assert_eq!(
            shown(item(PostingKind::Topup, (1_500, 0), Vec::new(), false)),
            (500, LedgerDirection::Credit, 0)
        );
        let held = item(PostingKind::Hold, (550, 450), vec![train("train-1")], false);
        assert_eq!(
            held.description,
            "4.50 USD set aside for 8 × h200, allocation train-1 in project training"
        );
        assert_eq!(shown(held), (0, LedgerDirection::Transfer, 450));
    }

    #[test]
    fn what_a_posting_was_for_is_said_in_words() {
        let said = |kind, about, more| item(kind, (900, 0), about, more).description;
        let many = vec![train("a"), train("b")];
        assert_eq!(said(PostingKind::Usage, many.clone(), false), "Usage: allocations a, b");
        assert_eq!(said(PostingKind::Usage, many, true), "Usage: allocations a, b and others");
        assert_eq!(said(PostingKind::Credit, Vec::new(), false), "Credit: because");
        assert_eq!(said(PostingKind::Correction, Vec::new(), false), "Correction: because");
        assert_eq!(said(PostingKind::HoldRelease, Vec::new(), false), "0.00 USD given back: because");
        let paid = posting(PostingKind::Topup, 1_500, 0, Some("pi_1"));
        let paid = LedgerItem::new(paid, PostingKind::Topup, BEFORE, Vec::new(), false);
        assert_eq!(paid.description, "Top-up, payment pi_1");
    }
}
