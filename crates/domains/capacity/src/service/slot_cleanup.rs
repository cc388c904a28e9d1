//! Slots that could not be cleaned, and how they come back: cleaned after all, or by the word of an operator who
//! looked at the machine.

use fleet::api::{SlotState, slots_force_cleaned, slots_retry_cleaning};
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, SagaRunId, SlotId},
    text::Reason,
};
use lifecycle::Named as _;
use pg::{WriteTx, changed};
use saga::StartError;
use schemars::JsonSchema;
use serde::Serialize;

use super::release::{allocation_lock, history_append};
use crate::{
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState, AllocationView, Shape},
        events::AllocationReleased,
        history::HistoryKind,
    },
    store::{
        allocation_ends,
        allocations::{Along, lock, step},
        claims,
    },
    workflow::{CLEANUP, CleanupInput, fence},
};

fn verified(runtime_verified_absent: bool) -> Result<(), Problem> {
    if runtime_verified_absent {
        return Ok(());
    }
    let text =
        "must be true: check the machine first, and make sure that no data of the former user is left on it";
    Err(Problem::field("runtime_verified_absent", text))
}

/// Ends a release that cannot be finished: an operator vouches that nothing is left, and the capacity is free. The
/// reason is shown to the project.
pub async fn force_cleanup(
    tx: &mut WriteTx,
    id: AllocationId,
    runtime_verified_absent: bool,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Allocation, Failure> {
    verified(runtime_verified_absent)?;
    let before = allocation_lock(tx, id).await?;
    before.check_version(if_match)?;
    if before.state != AllocationState::ReleaseFailed {
        before.after(AllocationEvent::RetryRelease)?;
    }
    new_key(tx, &before).await?;
    // Slots that an operator has taken out of service meanwhile stay so.
    let blocked = allocation_ends::blocked(tx.conn(), id, &before.slot_ids).await?;
    slots_force_cleaned(tx, &blocked).await?;
    let text = format!("cleaned by the platform: {reason}");
    let along = Along { reason: &text, cause: None, failure_code: None };
    let between = step(tx, &before, AllocationEvent::RetryRelease, along).await?;
    let after = step(tx, &between, AllocationEvent::Released, along).await?;
    let now = tx.db().ambient().now();
    claims::free(tx, id, now).await?;
    tx.emit(&AllocationReleased { allocation_id: id, project_id: after.project_id })?;
    changed(tx, "allocation", id, &AllocationView::from(before), &AllocationView::from(after.clone()))?;
    Ok(after)
}

/// A cleaning that was begun.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SlotCleanup {
    pub run_id: SagaRunId,
    /// Who left them uncleaned.
    pub allocation_id: AllocationId,
    /// All that are cleaned with it: what one allocation left is cleaned together.
    pub slot_ids: Vec<SlotId>,
}

/// Cleans what an allocation that is over left, once more.
pub async fn slot_cleanup_retry(tx: &mut WriteTx, slot: SlotId) -> Result<SlotCleanup, Failure> {
    let Some(allocation) = left_by(tx, slot).await? else {
        let text = "The allocation that used the slot is unknown, so the cleanup has no parameters. Check the machine, then force the cleanup.";
        return Err(Problem::new(Code::Unprocessable, text).into());
    };
    let slot_ids = allocation_ends::blocked(tx.conn(), allocation.id, &allocation.slot_ids).await?;
    // From here on they are the workflow's: nobody can say meanwhile that they are clean, and sell them.
    slots_retry_cleaning(tx, &slot_ids).await?;
    let subject = slot_ids.first().copied().unwrap_or(slot).to_string();
    let input = CleanupInput { allocation_id: allocation.id, slot_ids };
    let started = saga::start(tx, &CLEANUP, &subject, Some(allocation.org_id), &input).await;
    let run_id = match started {
        Ok(run) => run,
        Err(StartError::AlreadyRunning) => {
            return Err(Problem::new(
                Code::Conflict,
                "The slot is already being cleaned. Wait until the cleanup has ended.",
            )
            .into());
        }
        Err(error) => return Err(error.into()),
    };
    let cleanup = SlotCleanup { run_id, allocation_id: allocation.id, slot_ids: input.slot_ids };
    tx.record("slot", slot, None::<&()>, Some(&cleanup))?;
    Ok(cleanup)
}

/// A slot that is free by an operator's word.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SlotCleaned {
    pub slot_id: SlotId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_id: Option<AllocationId>,
    pub reason: String,
}

/// A node whose tenant had the whole machine makes a new key also when nobody waits for that.
async fn new_key(tx: &mut WriteTx, allocation: &Allocation) -> Result<(), Failure> {
    if allocation.shape == Shape::Baremetal {
        let now = tx.db().ambient().now();
        fleet::api::node_rekey(tx, allocation.node_id, now).await?;
    }
    Ok(())
}

/// An operator vouches that nothing is left on the slot.
pub async fn slot_force_cleanup(
    tx: &mut WriteTx,
    slot: SlotId,
    runtime_verified_absent: bool,
    reason: &Reason,
) -> Result<SlotCleaned, Failure> {
    verified(runtime_verified_absent)?;
    let allocation = left_by(tx, slot).await?;
    if let Some(allocation) = &allocation {
        new_key(tx, allocation).await?;
    }
    slots_force_cleaned(tx, &[slot]).await?;
    if let Some(allocation) = &allocation {
        history_append(tx, allocation, HistoryKind::Operation, "force_cleanup", reason.as_str()).await?;
    }
    let allocation_id = allocation.map(|allocation| allocation.id);
    let cleaned = SlotCleaned { slot_id: slot, allocation_id, reason: reason.to_string() };
    tx.record("slot", slot, None::<&()>, Some(&cleaned))?;
    Ok(cleaned)
}

/// The allocation that is over and left the slot uncleaned. One that is not over has ways of its own. The allocation is
/// held before the slot, as everywhere.
async fn left_by(tx: &mut WriteTx, slot: SlotId) -> Result<Option<Allocation>, Failure> {
    let allocation = match allocation_ends::holder(tx.conn(), slot).await? {
        Some(holder) => lock(tx.conn(), holder.allocation).await?,
        None => None,
    };
    let state = allocation_ends::lock_slot(tx.conn(), slot).await?;
    let holder = allocation_ends::holder(tx.conn(), slot).await?;
    if holder.as_ref().map(|holder| holder.allocation) != allocation.as_ref().map(|allocation| allocation.id)
    {
        return Err(
            Problem::new(Code::Conflict, "The slot was changed by another request. Read it again.").into()
        );
    }
    let held = holder.is_some_and(|holder| holder.live)
        || allocation.as_ref().is_some_and(|allocation| !allocation.state.is_over());
    if state != SlotState::CleanupBlocked {
        let taken = matches!(state, SlotState::Reserved | SlotState::InUse | SlotState::Cleaning);
        if held || !taken || allocation_ends::being_cleaned(tx.conn(), slot).await? {
            let text = format!("The slot is {state}; only a slot in state cleanup_blocked can be cleaned.");
            return Err(Problem::new(Code::InvalidTransition, text).detail("state", state.name()).into());
        }
        // Nobody holds it and nobody cleans it: whatever was to do that got lost.
        fence(tx, &[slot], "The workflow of its cleanup was lost.").await?;
    }
    if let Some(allocation) = &allocation {
        if held {
            let text = "An allocation still claims the slot. Retry its release, or force the cleanup of the allocation.";
            return Err(Problem::new(Code::InUse, text)
                .detail("allocation_id", allocation.id.to_string())
                .into());
        }
        tx.audit_in_org(allocation.org_id);
    }
    Ok(allocation)
}
