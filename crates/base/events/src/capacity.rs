//! What capacity tells the rest of the product, on the stream PROVISIONING. They carry no layout of the fleet.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, GroupId, ProjectId, UserId};

lifecycle::named_enum! {
    /// Who or what ended an allocation.
    ReleaseCause = "release cause" {
        User = "user",
        Admin = "admin",
        Depletion = "depletion",
        /// Its project has spent its budget.
        Budget = "budget",
        /// Another member of its group failed.
        Group = "group",
    }
}

lifecycle::named_columns! { ReleaseCause }

crate::declare::events! { Provisioning;
    AllocationRequested = "provisioning.requested", "Capacity was reserved and is being provisioned." {
        allocation_id: AllocationId, project_id: ProjectId, group_id: Option<GroupId>, sku: String, region: String, gpus: i32 }
    AllocationActive = "provisioning.active", "The machine is ready; its meter runs from `meter_opened_at` at the pinned price." {
        allocation_id: AllocationId, project_id: ProjectId, sku: String, gpus: i32, price_unit: String,
        unit_price_minor: i64, currency: String, meter_opened_at: DateTime<Utc> }
    AllocationFailed = "provisioning.failed", "The launch failed and was rolled back; it is not billed." {
        allocation_id: AllocationId, project_id: ProjectId, group_id: Option<GroupId>, failure_code: Option<String>, reason: String,
        creator_id: Option<UserId> }
    AllocationReleasing = "provisioning.releasing.requested", "The machine is being released; its meter stopped at `meter_closed_at`." {
        allocation_id: AllocationId, project_id: ProjectId, cause: ReleaseCause, meter_opened_at: Option<DateTime<Utc>>, meter_closed_at: Option<DateTime<Utc>>,
        creator_id: Option<UserId> }
    AllocationReleased = "provisioning.releasing.completed", "The machine was cleaned and its capacity is free." {
        allocation_id: AllocationId, project_id: ProjectId }
    AllocationReleaseFailed = "provisioning.release_failed", "The machine could not be cleaned; its capacity stays fenced." {
        allocation_id: AllocationId, project_id: ProjectId, failure_code: Option<String>, reason: String }
    ForceReleaseRequested = "provisioning.force_release_requested", "The release of an allocation was requested by the platform, a balance or a budget." {
        allocation_id: AllocationId, cause: ReleaseCause }
}
