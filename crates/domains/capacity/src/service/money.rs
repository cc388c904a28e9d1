//! The seam to billing: what must happen in the same transaction as a change of an allocation.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, FindingId, OrgId, ProjectId, ServiceAccountId},
    principal::PrincipalId,
};
use pg::{Connection, WriteTx};

pub use crate::model::money::{Due, Meter};
pub use billing::api::{Depletion, Fault, LaunchFunds};

/// Money as capacity sees it. Each call is part of the transaction of the change; an error rolls both back.
#[async_trait]
pub trait Money: Send + Sync {
    /// What decides about the money of a launch by whoever this is, or by anybody without a spend cap; none where nobody
    /// pays.
    async fn launch_funds(
        &self,
        _: &mut Connection,
        _: (OrgId, ProjectId),
        _: Option<PrincipalId>,
    ) -> Result<Option<LaunchFunds>, Failure> {
        Ok(None)
    }
    /// Whether something ends the spending of the account: a spend cap of its own, or a budget of the project that releases.
    /// Where nobody pays, nothing is spent.
    async fn is_limited(
        &self,
        _: &mut Connection,
        _: (OrgId, ProjectId),
        _: ServiceAccountId,
    ) -> Result<bool, Failure> {
        Ok(true)
    }
    /// Before any work is done: is there enough for these meters? Nothing is held, so it decides nothing. Answers when the
    /// balance ends with them, if it does.
    async fn check_funds(&self, tx: &mut WriteTx, meters: &[Meter]) -> Result<Option<Depletion>, Failure>;
    /// Capacity is reserved: money is set aside for these meters, which are made now, or the launch is refused. They are of
    /// one launch: only the allocations differ.
    async fn hold(&self, tx: &mut WriteTx, meters: &[Meter]) -> Result<(), Failure>;
    /// The allocation became active at `at`.
    async fn meter_open(&self, tx: &mut WriteTx, meter: &Meter, at: DateTime<Utc>) -> Result<(), Failure>;
    /// It stopped being active at `at`. Called exactly once for each `meter_open`.
    async fn meter_close(
        &self,
        tx: &mut WriteTx,
        allocation: AllocationId,
        at: DateTime<Utc>,
    ) -> Result<(), Failure>;
    /// The launch failed before a meter was opened: what was held goes back. After everything else is given back.
    async fn launch_failed(&self, tx: &mut WriteTx, allocation: AllocationId) -> Result<(), Failure>;

    /// Whether what runs must end for this, decided for this transaction.
    async fn is_due(&self, _: &mut WriteTx, _: Due) -> Result<bool, Failure> {
        Ok(false)
    }
    /// Organizations whose balance was used up before this time and for which something still runs; at most `limit`.
    async fn overdue(&self, _: &mut Connection, _: DateTime<Utc>, _: i64) -> Result<Vec<OrgId>, Failure> {
        Ok(Vec::new())
    }
    /// Projects whose budget ends what they run, and that still run something; after this one, by id, at most `limit`.
    async fn budgets_overdue(
        &self,
        _: &mut Connection,
        _: ProjectId,
        _: DateTime<Utc>,
        _: i64,
    ) -> Result<Vec<(OrgId, ProjectId)>, Failure> {
        Ok(Vec::new())
    }
    /// Service accounts that have spent their cap and still run something; after this one, by id, at most `limit`.
    async fn spend_caps_overdue(
        &self,
        _: &mut Connection,
        _: ServiceAccountId,
        _: DateTime<Utc>,
        _: i64,
    ) -> Result<Vec<(OrgId, ServiceAccountId)>, Failure> {
        Ok(Vec::new())
    }
    /// The hardware of the allocation is faulty: nobody pays for it from `fault.since` to `fault.until`, or a person is asked
    /// whether that is so.
    async fn credit(&self, _: &mut WriteTx, _: AllocationId, _: Fault<'_>) -> Result<(), Failure> {
        Ok(())
    }
    /// The fault is over: answers which allocations are paid for again, and from when on.
    async fn credit_end(
        &self,
        _: &mut WriteTx,
        _: FindingId,
        _: DateTime<Utc>,
    ) -> Result<Vec<(AllocationId, DateTime<Utc>)>, Failure> {
        Ok(Vec::new())
    }
}

/// Nobody pays: what is metered is in the allocation's own columns and events only.
pub struct Unbilled;

#[async_trait]
impl Money for Unbilled {
    async fn check_funds(&self, _: &mut WriteTx, _: &[Meter]) -> Result<Option<Depletion>, Failure> {
        Ok(None)
    }

    async fn hold(&self, _: &mut WriteTx, _: &[Meter]) -> Result<(), Failure> {
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
