//! Credits for faulty hardware: which of them a rule alone decides, and which wait for a person.

use chrono::{DateTime, Utc};
use kernel::{
    ids::{AllocationId, FindingId},
    policy::Setting,
};
use schemars::JsonSchema;
use serde::Serialize;

lifecycle::named_enum! {
    /// Why a credit waits for a person.
    ReviewCause = "review cause" {
        /// The tenant is root on the machine and can cause such a fault.
        TenantRoot = "tenant_root",
        /// The allocation had ended when the fault was heard of.
        Ended = "ended",
        /// It is above the policy.
        Amount = "amount",
    }
}

impl ReviewCause {
    /// For who decides.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TenantRoot => "the tenant has root on the machine and can cause the fault",
            Self::Ended => "the allocation had ended before the fault was reported",
            Self::Amount => "the amount is above the policy billing.credit_approval_minor",
        }
    }
}

/// What is known of a credit when it is decided whether a person has to look at it.
#[derive(Clone, Copy, Debug)]
pub struct Proposed {
    pub amount_minor: i64,
    pub tenant_may_be_cause: bool,
    pub has_ended: bool,
}

/// Nothing: it is given at once.
pub fn review_cause(credit: Proposed, limit: Setting) -> Option<ReviewCause> {
    if credit.tenant_may_be_cause {
        Some(ReviewCause::TenantRoot)
    } else if credit.has_ended {
        Some(ReviewCause::Ended)
    } else {
        (credit.amount_minor > limit.get()).then_some(ReviewCause::Amount)
    }
}

/// For what a credit was proposed by the product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FaultCredit {
    pub allocation_id: AllocationId,
    pub finding_id: FindingId,
    /// The kind of fault, as `xid.79`.
    pub code: String,
    /// `gpu` or `machine`.
    pub part: String,
    /// Why it waits for a person.
    pub cause: ReviewCause,
    pub since: DateTime<Utc>,
    /// Nothing: until the finding is resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
}

#[cfg(test)]
mod tests {
    use kernel::policy::{PolicyKey as _, keys};

    use super::*;

    #[test]
    fn each_cause_tells_who_decides_another_thing() {
        let texts = ReviewCause::ALL.map(ReviewCause::text);
        assert!(texts.iter().all(|text| text.contains(' ')), "{texts:?}");
        assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2]);
    }

    #[test]
    fn a_rule_alone_gives_small_credits_to_what_runs_and_whose_tenant_cannot_have_caused_them() {
        let limit = keys::BILLING_CREDIT_APPROVAL_MINOR.read(&serde_json::json!(100));
        for (amount_minor, tenant_may_be_cause, has_ended, cause) in [
            (0, false, false, None),
            (100, false, false, None),
            (101, false, false, Some(ReviewCause::Amount)),
            (1, false, true, Some(ReviewCause::Ended)),
            (1, true, false, Some(ReviewCause::TenantRoot)),
            (101, true, true, Some(ReviewCause::TenantRoot)),
        ] {
            let credit = Proposed { amount_minor, tenant_may_be_cause, has_ended };
            assert_eq!(review_cause(credit, limit), cause, "{credit:?}");
        }
    }
}
