//! Money, in an installation that charges: the seam filled by billing.

use async_trait::async_trait;
use billing::api::{self, Billing, Launch, MeterUnit};
use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, FindingId, OrgId, ProjectId, ServiceAccountId},
    principal::PrincipalId,
};
use pg::{Connection, WriteTx};

use super::money::{Depletion, Due, Fault, LaunchFunds, Meter, Money};
use crate::model::sku::PriceUnit;

/// What is used is paid for.
pub struct Billed(pub Billing);

const fn meter_unit(unit: PriceUnit) -> MeterUnit {
    match unit {
        PriceUnit::GpuHour => MeterUnit::GpuHour,
        PriceUnit::NodeHour => MeterUnit::NodeHour,
    }
}

/// As billing takes it; nothing when nothing is launched.
fn launch(meters: &[Meter]) -> Option<Launch> {
    let first = meters.first()?;
    Some(Launch {
        org: first.org,
        project: first.project,
        person: first.person,
        sku: first.sku.clone(),
        unit: meter_unit(first.price_unit),
        units: first.units,
        unit_price_minor: first.unit_price_minor,
        currency: first.currency.clone(),
        allocations: meters.iter().map(|meter| meter.allocation).collect(),
    })
}

impl Billed {
    /// What was launched before the installation charged has no meter. It must still come to its end; reconciliation
    /// names it.
    async fn is_metered(&self, tx: &mut WriteTx, allocation: AllocationId) -> Result<bool, Failure> {
        let metered = api::is_metered(tx.conn(), allocation).await?;
        if !metered {
            tracing::error!(allocation_id = %allocation, "an allocation has no meter and is not billed");
        }
        Ok(metered)
    }
}

#[async_trait]
impl Money for Billed {
    async fn is_limited(
        &self,
        conn: &mut Connection,
        (org, project): (OrgId, ProjectId),
        account: ServiceAccountId,
    ) -> Result<bool, Failure> {
        Ok(api::account_is_capped(conn, org, account.uuid()).await?
            || api::project_is_limited(conn, org, project).await?)
    }

    async fn launch_funds(
        &self,
        conn: &mut Connection,
        place: (OrgId, ProjectId),
        launcher: Option<PrincipalId>,
    ) -> Result<Option<LaunchFunds>, Failure> {
        let launcher = launcher.map(PrincipalId::uuid);
        Ok(Some(api::launch_funds(&self.0, conn, place, launcher).await?))
    }

    async fn check_funds(&self, tx: &mut WriteTx, meters: &[Meter]) -> Result<Option<Depletion>, Failure> {
        match launch(meters) {
            Some(launch) => api::funds_check(&self.0, tx.conn(), &launch).await,
            None => Ok(None),
        }
    }

    async fn hold(&self, tx: &mut WriteTx, meters: &[Meter]) -> Result<(), Failure> {
        match launch(meters) {
            Some(launch) => api::funds_hold(&self.0, tx, &launch).await,
            None => Ok(()),
        }
    }

    async fn meter_open(&self, tx: &mut WriteTx, meter: &Meter, at: DateTime<Utc>) -> Result<(), Failure> {
        if !self.is_metered(tx, meter.allocation).await? {
            return Ok(());
        }
        api::meter_open(tx, meter.allocation, at).await
    }

    async fn meter_close(
        &self,
        tx: &mut WriteTx,
        allocation: AllocationId,
        at: DateTime<Utc>,
    ) -> Result<(), Failure> {
        if !self.is_metered(tx, allocation).await? {
            return Ok(());
        }
        api::meter_close(tx, allocation, at).await
    }

    async fn launch_failed(&self, tx: &mut WriteTx, allocation: AllocationId) -> Result<(), Failure> {
        api::launch_failed(tx, allocation).await
    }

    async fn is_due(&self, tx: &mut WriteTx, due: Due) -> Result<bool, Failure> {
        match due {
            Due::Depletion(org) => api::is_depleted(tx, org).await,
            Due::Budget(_, project) => api::must_release_project(tx, project).await,
            Due::SpendCap(org, account) => api::must_release_account(tx, org, account).await,
        }
    }

    async fn overdue(
        &self,
        conn: &mut Connection,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<OrgId>, Failure> {
        api::overdue(conn, before, limit).await
    }

    async fn budgets_overdue(
        &self,
        conn: &mut Connection,
        after: ProjectId,
        now: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<(OrgId, ProjectId)>, Failure> {
        api::budgets_overdue(conn, after, now, limit).await
    }

    async fn spend_caps_overdue(
        &self,
        conn: &mut Connection,
        after: ServiceAccountId,
        now: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<(OrgId, ServiceAccountId)>, Failure> {
        api::spend_caps_overdue(conn, after, now, limit).await
    }

    async fn credit(
        &self,
        tx: &mut WriteTx,
        allocation: AllocationId,
        fault: Fault<'_>,
    ) -> Result<(), Failure> {
        api::credit(&self.0, tx, allocation, fault).await
    }

    async fn credit_end(
        &self,
        tx: &mut WriteTx,
        finding: FindingId,
        at: DateTime<Utc>,
    ) -> Result<Vec<(AllocationId, DateTime<Utc>)>, Failure> {
        let resumed = api::credit_end(tx, finding, at).await?;
        Ok(resumed.into_iter().map(|resumed| (resumed.allocation, resumed.at)).collect())
    }
}
