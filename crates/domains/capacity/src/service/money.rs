//! The seam to billing: what must happen in the same transaction as a change of an allocation.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, OrgId, ProjectId},
};
use pg::WriteTx;

/// What a meter is opened for: the price is pinned, the units are GPUs or nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    pub allocation: AllocationId,
    pub org: OrgId,
    pub project: ProjectId,
    pub sku: String,
    pub price_unit: String,
    pub units: i32,
    pub unit_price_minor: i64,
    pub currency: String,
}

/// Money as capacity sees it. Each call is part of the transaction of the change; an error rolls both back.
#[async_trait]
pub trait Money: Send + Sync {
    /// Before capacity is reserved: is there enough for these meters? May hold an amount.
    async fn check_funds(&self, tx: &mut WriteTx, meters: &[Meter]) -> Result<(), Failure>;
    /// The allocation became active at `at`.
    async fn meter_open(&self, tx: &mut WriteTx, meter: &Meter, at: DateTime<Utc>) -> Result<(), Failure>;
    /// It stopped being active at `at`. Called exactly once for each `meter_open`.
    async fn meter_close(
        &self,
        tx: &mut WriteTx,
        allocation: AllocationId,
        at: DateTime<Utc>,
    ) -> Result<(), Failure>;
    /// The launch failed before a meter was opened: what was held goes back.
    async fn launch_failed(&self, tx: &mut WriteTx, allocation: AllocationId) -> Result<(), Failure>;
}

/// Nobody pays: what is metered is in the allocation's own columns and events only.
pub struct Unbilled;

#[async_trait]
impl Money for Unbilled {
    async fn check_funds(&self, _: &mut WriteTx, _: &[Meter]) -> Result<(), Failure> {
        Ok(())
    }

    async fn meter_open(&self, _: &mut WriteTx, _: &Meter, _: DateTime<Utc>) -> Result<(), Failure> {
        Ok(())
    }

    async fn meter_close(&self, _: &mut WriteTx, _: AllocationId, _: DateTime<Utc>) -> Result<(), Failure> {
        Ok(())
    }

    async fn launch_failed(&self, _: &mut WriteTx, _: AllocationId) -> Result<(), Failure> {
        Ok(())
    }
}
