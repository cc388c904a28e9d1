//! Takes from machines the keys of people who may no longer log in: they left the project or the organization, lost their
//! role, deleted the key, or their account was disabled.
//!
//! Nothing here asks what happened. What each machine has is compared with what its people have now; events only make that
//! happen at once, and a turn of everything finds what they missed. Removal needs no order of a request: the work can
//! only take keys away (`node_proto::catalog::KeyRemovalKind`).

use chrono::TimeDelta;
use kernel::{CorrelationId, Failure, ids::AllocationId};
use pg::{Origin, Permit, WriteTx, changed};
use saga::StartError;

use super::release::{allocation_lock, history_append};
use crate::{
    Capacity,
    model::{
        access::MachinesOf,
        allocation::{AllocationState, AllocationView},
        history::HistoryKind,
    },
    store::machine_keys,
    workflow::{ACCESS, LaunchInput, entitled_keys},
};

/// Looked for at once.
const BATCH: i64 = 200;
/// A removal that failed is tried again after this.
const RETRY_AFTER: TimeDelta = TimeDelta::minutes(5);
const TIDY_AT_ONCE: i64 = 5000;

/// Begins every removal that is due. Answers for how many allocations; an error says that some are left.
pub async fn keys_remove(capacity: &Capacity, of: MachinesOf, origin: &Origin) -> Result<usize, Failure> {
    // Whoever was just heard of again is asked at once.
    let wait = if matches!(of, MachinesOf::Node(_)) { TimeDelta::zero() } else { RETRY_AFTER };
    let retry = capacity.db.ambient().now() - wait;
    let (mut begun, mut failed, mut after) = (0, None, None::<AllocationId>);
    loop {
        let some = {
            let mut upkeep = capacity.db.upkeep("find keys that machines must give up").await?;
            machine_keys::outdated(upkeep.conn(), of, after, retry, BATCH).await?
        };
        let Some(last) = some.last().copied() else { break };
        after = Some(last);
        for id in some {
            match remove_of(capacity, id, origin).await {
                Ok(true) => begun += 1,
                Ok(false) => {}
                // One that cannot be changed now does not keep the others.
                Err(failure) => {
                    tracing::warn!(allocation_id = %id, error = ?failure, "keys cannot be taken away for now; it is tried again");
                    failed = Some(failure);
                }
            }
        }
    }
    failed.map_or(Ok(begun), Err)
}

/// The turn of everything.
pub async fn keys_remove_all(capacity: &Capacity) -> Result<usize, Failure> {
    let origin = Origin::internal(CorrelationId(capacity.db.ambient().uuid()));
    {
        let mut upkeep = capacity.db.upkeep("forget keys of allocations that are over").await?;
        machine_keys::tidy(upkeep.conn(), TIDY_AT_ONCE).await?;
    }
    keys_remove(capacity, MachinesOf::Everybody, &origin).await
}

async fn remove_of(capacity: &Capacity, id: AllocationId, origin: &Origin) -> Result<bool, Failure> {
    let permit = Permit::system("somebody may no longer log in to a machine", origin.clone());
    let mut tx = capacity.db.write(permit, "allocation.keys_remove").await?;
    match remove_within(&mut tx, id).await {
        Ok(true) => {
            tx.commit(None).await?;
            Ok(true)
        }
        other => {
            tx.roll_back().await;
            other
        }
    }
}

async fn remove_within(tx: &mut WriteTx, id: AllocationId) -> Result<bool, Failure> {
    let before = allocation_lock(tx, id).await?;
    let launching = matches!(before.state, AllocationState::Requested | AllocationState::Provisioning);
    if !launching && before.state != AllocationState::Active {
        // A machine that goes takes its keys along.
        return Ok(false);
    }
    let keep = entitled_keys(tx, &before).await?;
    let marked = machine_keys::mark_removed(tx, id, before.access_version + 1, &keep).await?;
    let mut after = before.clone();
    if marked > 0 {
        after = machine_keys::version_raise(tx, &before).await?;
        history_append(tx, &after, HistoryKind::Access, "keys_withdrawn", "somebody may no longer log in")
            .await?;
    }
    let mut begun = marked > 0;
    // A launch takes up the newest set by itself, and so does a workflow that brings another.
    if !launching {
        let input = LaunchInput { allocation_id: id };
        match saga::start(tx, &ACCESS, &after.access_subject(), Some(after.org_id), &input).await {
            Ok(_) => begun = true,
            Err(StartError::AlreadyRunning) => {}
            Err(error) => return Err(error.into()),
        }
    }
    changed(tx, "allocation", id, &AllocationView::from(before), &AllocationView::from(after))?;
    Ok(begun)
}
