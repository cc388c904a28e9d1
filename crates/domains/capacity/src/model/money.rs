//! What capacity tells billing: what is metered, and for what money ends it.

use kernel::ids::{AllocationId, OrgId, ProjectId, ServiceAccountId};
use uuid::Uuid;

use super::sku::PriceUnit;

/// What a meter is opened for: the price is pinned, the units are GPUs or nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    pub allocation: AllocationId,
    pub org: OrgId,
    pub project: ProjectId,
    /// Who made it.
    pub person: Option<Uuid>,
    pub sku: String,
    pub price_unit: PriceUnit,
    pub units: i32,
    pub unit_price_minor: i64,
    pub currency: String,
}

/// For what money ends allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The balance is used up.
    Depletion(OrgId),
    /// The project has spent its budget, and wants that.
    Budget(OrgId, ProjectId),
    /// The service account has spent its cap.
    SpendCap(OrgId, ServiceAccountId),
}
