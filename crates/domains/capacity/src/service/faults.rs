//! Hardware that is sick is not paid for: from when the fault began to when it was resolved, to the second.
//!
//! Decided from what is so when it is asked, not from the order in which it was heard: the beginning of a fault may
//! arrive after its end, and a machine may become active on hardware that is known to be sick.

use chrono::{DateTime, Utc};
use fleet::api::{CreditFinding, credit_finding_lock, credit_findings_open};
use kernel::{
    Failure,
    ids::{AllocationId, FindingId},
};
use pg::WriteTx;

use super::money::Fault;
use crate::{
    Capacity,
    model::allocation::{Allocation, AllocationState},
    store::{affected_allocations, allocations},
};

fn fault(finding: &CreditFinding, since: DateTime<Utc>, tenant_is_root: bool) -> Fault<'_> {
    let part = if finding.slot.is_some() { "gpu" } else { "machine" };
    Fault {
        finding: finding.id,
        code: &finding.code,
        part,
        since,
        until: finding.ended_at,
        // Root is root over the agent, too: it can forge what the agent reports, whatever the code.
        tenant_may_be_cause: tenant_is_root,
    }
}

/// A fault that is owed for was found.
pub async fn begun(capacity: &Capacity, tx: &mut WriteTx, id: FindingId) -> Result<(), Failure> {
    let Some(finding) = credit_finding_lock(tx, id).await? else { return Ok(()) };
    let (since, until) = (finding.since, finding.ended_at);
    let paying =
        affected_allocations::paying_between(tx.conn(), finding.node, finding.slot, since, until).await?;
    for allocation in &paying {
        let fault = fault(&finding, since, allocation.tenant_is_root);
        capacity.money.credit(tx, allocation.id, fault).await?;
    }
    let concerned: Vec<AllocationId> = paying.into_iter().map(|allocation| allocation.id).collect();
    tx.record("finding", id, None::<&()>, Some(&concerned))?;
    Ok(())
}

/// It was resolved. What is on hardware with another fault goes on without being paid for, because of that one.
pub async fn ended(
    capacity: &Capacity,
    tx: &mut WriteTx,
    id: FindingId,
    at: DateTime<Utc>,
) -> Result<(), Failure> {
    let resumed = capacity.money.credit_end(tx, id, at).await?;
    for (allocation, at) in &resumed {
        if let Some(allocation) = allocations::get(tx.conn(), *allocation).await? {
            credit_known(capacity, tx, &allocation, *at).await?;
        }
    }
    let resumed: Vec<AllocationId> = resumed.into_iter().map(|(allocation, _)| allocation).collect();
    tx.record("finding", id, None::<&()>, Some(&resumed))?;
    Ok(())
}

/// A machine became active: whether its hardware is known to be sick.
pub async fn activated(capacity: &Capacity, tx: &mut WriteTx, id: AllocationId) -> Result<(), Failure> {
    let Some(allocation) = allocations::get(tx.conn(), id).await? else { return Ok(()) };
    match (allocation.state, allocation.meter_opened_at) {
        (AllocationState::Active, Some(at)) => credit_known(capacity, tx, &allocation, at).await,
        _ => Ok(()),
    }
}

async fn credit_known(
    capacity: &Capacity,
    tx: &mut WriteTx,
    allocation: &Allocation,
    since: DateTime<Utc>,
) -> Result<(), Failure> {
    for known in credit_findings_open(tx.conn(), allocation.node_id).await? {
        if !known.concerns(&allocation.slot_ids) {
            continue;
        }
        // Locked, so that it is not resolved between the read and the action.
        let Some(finding) = credit_finding_lock(tx, known.id).await? else { continue };
        if finding.ended_at.is_none() {
            let (since, root) = (since.max(finding.since), allocation.tenant_is_root());
            capacity.money.credit(tx, allocation.id, fault(&finding, since, root)).await?;
        }
    }
    Ok(())
}
