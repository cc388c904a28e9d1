//! What billing tells the rest of the product, on the stream BILLING.

use chrono::{DateTime, Utc};
use kernel::ids::{AdjustmentId, AllocationId, FindingId, OrgId, ProjectId, ServiceAccountId, UserId};

lifecycle::named_enum! {
    /// What happens when the threshold is crossed.
    BudgetAction = "budget action" {
        /// People are told.
        Notify = "notify",
        /// New launches are refused until the next month, too.
        Block = "block",
        /// Everything that runs in the project is released, too.
        Release = "release",
    }
}

lifecycle::named_enum! {
    AdjustmentKind = "kind of adjustment" {
        /// Money that is given.
        Credit = "credit",
        /// Credit that is used before money and cannot be paid out.
        Promo = "promo",
        /// Undoes a posting that was wrong, as far as it was.
        Correction = "correction",
    }
}

lifecycle::named_columns! { AdjustmentKind, BudgetAction }

crate::declare::events! { Billing;
    LowBalanceWarning = "billing.low_balance_warning", "The balance fell to the threshold, or does not last as long as a launch must be paid for; emitted once until it is healthy again." {
        org_id: OrgId, balance_minor: i64, threshold_minor: i64, currency: String, depletes_at: Option<DateTime<Utc>> }
    AutoReleasePending = "billing.auto_release_pending", "The balance will be used up within the next window; all running allocations are released then." {
        org_id: OrgId, balance_minor: i64, currency: String, depletes_at: DateTime<Utc> }
    BalanceDepleted = "billing.balance_depleted", "The balance is used up; all running allocations are released." {
        org_id: OrgId, balance_minor: i64, currency: String }
    BalanceRestored = "billing.balance_restored", "The balance is above the threshold again; released allocations are not restarted." {
        org_id: OrgId, balance_minor: i64, currency: String }
    BudgetCrossed = "billing.budget_crossed", "The spending of a project reached a threshold of its monthly budget." {
        org_id: OrgId, project_id: ProjectId, action: BudgetAction, amount_minor: i64, threshold_percent: i32, spent_minor: i64, currency: String }
    SpendCapReached = "billing.spend_cap_reached", "A service account has spent its monthly cap; its running allocations are released." {
        org_id: OrgId, project_id: ProjectId, service_account_id: ServiceAccountId, amount_minor: i64, spent_minor: i64, currency: String }
    CreditPosted = "billing.credit_posted", "The meter of an allocation is paused, and the charges since then are credited." {
        org_id: OrgId, project_id: ProjectId, allocation_id: AllocationId, finding_id: Option<FindingId>, since: DateTime<Utc>,
        credited_minor: i64, currency: String, reason: String, creator_id: Option<UserId> }
    AdjustmentWaiting = "billing.adjustment_waiting", "A credit or a correction needs the approval of a second person; for the platform only." {
        adjustment_id: AdjustmentId, org_id: OrgId, allocation_id: Option<AllocationId>, kind: AdjustmentKind, amount_minor: i64,
        currency: String, reason: String, proposed_by: Option<UserId> }
}
