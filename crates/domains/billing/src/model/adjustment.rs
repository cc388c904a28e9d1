//! Postings that administrators ask for.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Problem,
    ids::{AdjustmentId, OrgId, PostingId, UserId},
    policy::Setting,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    account::{Account, Line, PostingKind},
    events::AdjustmentWaiting,
    fault_credit::FaultCredit,
};

lifecycle::lifecycle! {
    /// Posted at once when it is small; a larger one waits for another administrator.
    AdjustmentLifecycle = "ledger_adjustment", initial Proposed;
    states AdjustmentState { Proposed = "proposed", Posted = "posted", Rejected = "rejected" }
    events AdjustmentEvent { Approve = "approve", Reject = "reject" }
    Proposed on Approve => Posted;
    Proposed on Reject => Rejected;
}

/// The largest adjustment: balances stay far from where numbers end.
pub const MOST_MINOR: i64 = 1_000_000_000_000;

pub use events::billing::AdjustmentKind;

pub const fn posting_kind(kind: AdjustmentKind) -> PostingKind {
    match kind {
        AdjustmentKind::Credit => PostingKind::Credit,
        AdjustmentKind::Promo => PostingKind::Promo,
        AdjustmentKind::Correction => PostingKind::Correction,
    }
}

/// What is posted when the organization gains `amount_minor`.
pub fn posting_lines(kind: AdjustmentKind, amount_minor: i64) -> Vec<Line> {
    let (to, from) = match kind {
        AdjustmentKind::Credit => (Account::Prepaid, Account::CreditsGranted),
        AdjustmentKind::Promo => (Account::Promo, Account::CreditsGranted),
        AdjustmentKind::Correction => (Account::Prepaid, Account::Revenue),
    };
    vec![Line::new(to, amount_minor), Line::new(from, -amount_minor)]
}

/// Whether such an adjustment can be asked for at all.
pub fn check(kind: AdjustmentKind, amount_minor: i64, corrects: Option<PostingId>) -> Result<(), Problem> {
    if amount_minor == 0 || amount_minor.unsigned_abs() > MOST_MINOR.unsigned_abs() {
        let text = format!("must be an integer of minor units up to {MOST_MINOR}, and not zero");
        return Err(Problem::field("amount_minor", text));
    }
    match (kind, corrects) {
        (AdjustmentKind::Correction, None) => {
            Err(Problem::field("corrects_entry_id", "a correction must name the posting that it corrects"))
        }
        (AdjustmentKind::Correction, Some(_)) => Ok(()),
        (_, Some(_)) => Err(Problem::field("corrects_entry_id", "only a correction can name a posting")),
        (_, None) if amount_minor.is_negative() => Err(Problem::field(
            "amount_minor",
            "must be more than zero; use a correction to reduce a balance",
        )),
        (_, None) => Ok(()),
    }
}

/// For how long what was posted without a second person counts towards the policy's limit.
pub const SUMMED_OVER: TimeDelta = TimeDelta::hours(24);

/// What was posted without a second person in that time, gains and losses alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unapproved {
    /// To the ledger of one organization, by anybody.
    pub of_org_minor: i64,
    /// By one person, to any ledger.
    pub by_clerk_minor: i64,
}

/// Whether somebody else has to approve it: it, with what was posted before it, is above the policy. What is split is added
/// up again, over amounts, over clerks and over organizations.
pub fn needs_approval(amount_minor: i64, before: Unapproved, limit: Setting) -> bool {
    let with = |sum: i64| sum.saturating_add(amount_minor.saturating_abs());
    with(before.of_org_minor) > limit.get() || with(before.by_clerk_minor) > limit.get()
}

/// Who may decide on what somebody proposed: anybody who may adjust, but not they themselves.
pub fn may_decide(proposed_by: Option<UserId>, decides: UserId) -> Result<(), Problem> {
    if proposed_by != Some(decides) {
        return Ok(());
    }
    let text = "You proposed this adjustment; another administrator must approve or reject it.";
    Err(Problem::new(Code::InsufficientPermissions, text)
        .detail("reason", "second_approver_required")
        .suggest("Ask another platform administrator to approve or reject it."))
}

/// A posting that an administrator asks for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Adjustment {
    pub id: AdjustmentId,
    pub org_id: OrgId,
    pub kind: AdjustmentKind,
    /// Positive: the organization gains.
    pub amount_minor: i64,
    pub currency: String,
    /// The posting that a correction corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrects_entry_id: Option<PostingId>,
    pub reason: String,
    /// `proposed`: it waits for another administrator.
    pub state: AdjustmentState,
    /// Nobody when the product itself proposed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed_by: Option<UserId>,
    /// For what faulty hardware the product proposed it. What is posted is counted when it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultCredit>,
    /// Who approved or rejected it; who proposed it when it needed no second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<UserId>,
    /// Its place in the organization's ledger, once it is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Adjustment {
    /// For who may decide on it.
    pub fn waiting(&self) -> AdjustmentWaiting {
        AdjustmentWaiting {
            adjustment_id: self.id,
            org_id: self.org_id,
            allocation_id: self.fault.as_ref().map(|fault| fault.allocation_id),
            kind: self.kind,
            amount_minor: self.amount_minor,
            currency: self.currency.clone(),
            reason: self.reason.clone(),
            proposed_by: self.proposed_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::policy::{PolicyKey as _, keys};

    use super::*;

    #[test]
    fn whatever_is_adjusted_sums_to_zero_and_the_organization_gains_the_amount() {
        for kind in AdjustmentKind::ALL {
            let lines = posting_lines(kind, 17);
            assert_eq!(lines.iter().map(|line| line.amount_minor).sum::<i64>(), 0);
            assert_eq!(lines[0].amount_minor, 17);
            assert!(matches!(lines[0].account, Account::Prepaid | Account::Promo));
            assert_eq!(posting_kind(kind).name(), kind.name());
        }
    }

    #[test]
    fn what_was_posted_before_counts_for_the_clerk_and_for_the_organization() {
        let limit = keys::BILLING_ADJUSTMENT_APPROVAL_MINOR.read(&serde_json::json!(100));
        for (amount, of_org_minor, by_clerk_minor, needed) in [
            (100, 0, 0, false),
            (101, 0, 0, true),
            (-101, 0, 0, true),
            (40, 60, 60, false),
            (41, 60, 0, true),
            (41, 0, 60, true),
            (1, 100, 0, true),
            (i64::MIN, 0, 0, true),
            (1, i64::MAX, 0, true),
        ] {
            let before = Unapproved { of_org_minor, by_clerk_minor };
            assert_eq!(needs_approval(amount, before, limit), needed, "{amount} {before:?}");
        }
    }

    #[test]
    fn who_may_decide_is_told_what_waits() {
        let id = uuid::Uuid::from_u128;
        let fault = FaultCredit {
            allocation_id: id(4).into(),
            finding_id: id(5).into(),
            code: "xid.79".to_owned(),
            part: "gpu".to_owned(),
            cause: super::super::fault_credit::ReviewCause::Amount,
            since: DateTime::UNIX_EPOCH,
            until: None,
        };
        let adjustment = Adjustment {
            id: id(1).into(),
            org_id: id(2).into(),
            kind: AdjustmentKind::Credit,
            amount_minor: 7,
            currency: "USD".to_owned(),
            corrects_entry_id: None,
            reason: "faulty".to_owned(),
            state: AdjustmentState::Proposed,
            proposed_by: Some(id(3).into()),
            fault: Some(fault),
            decided_by: None,
            seq: None,
            version: 1,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        };
        let waiting = adjustment.waiting();
        assert_eq!((waiting.adjustment_id, waiting.org_id), (adjustment.id, adjustment.org_id));
        assert_eq!(waiting.allocation_id, Some(id(4).into()));
        assert_eq!(
            (waiting.amount_minor, waiting.currency.as_str(), waiting.reason.as_str()),
            (7, "USD", "faulty")
        );
    }

    #[test]
    fn nobody_decides_on_their_own_proposal_and_anybody_on_that_of_the_product() {
        let [one, other] = [1, 2].map(|n| UserId::from(uuid::Uuid::from_u128(n)));
        assert!(may_decide(Some(one), one).is_err());
        assert!(may_decide(Some(one), other).is_ok());
        assert!(may_decide(None, one).is_ok());
    }

    #[test]
    fn amounts_and_what_is_corrected_are_held_to_their_kind() {
        let some = Some(PostingId::from(uuid::Uuid::from_u128(1)));
        for (kind, amount, corrects, good) in [
            (AdjustmentKind::Credit, 1, None, true),
            (AdjustmentKind::Credit, 0, None, false),
            (AdjustmentKind::Credit, -1, None, false),
            (AdjustmentKind::Promo, MOST_MINOR, None, true),
            (AdjustmentKind::Promo, MOST_MINOR + 1, None, false),
            (AdjustmentKind::Promo, 1, some, false),
            (AdjustmentKind::Correction, -1, some, true),
            (AdjustmentKind::Correction, i64::MIN, some, false),
            (AdjustmentKind::Correction, 5, None, false),
        ] {
            assert_eq!(check(kind, amount, corrects).is_ok(), good, "{kind:?} {amount} {corrects:?}");
        }
    }
}
