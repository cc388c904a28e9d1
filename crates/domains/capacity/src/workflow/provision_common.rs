//! What every launch begins and ends with, whatever machine is made in between.

use fleet::api::{slots_doubt, slots_occupy};
use kernel::{Failure, ids::SlotId};
use pg::WriteTx;
use saga::{FailureCode, RunEnd, Signal, StartError, Step, StepCx, StepError};

use super::{
    ACCESS, CLEANUP, CleanupInput, LaunchInput, allocation_lock, allocation_lock_for_end,
    failure::{EndReason, WorkflowFailure},
    key_set::{FIRST_KEYS, keys_arrived, keys_send},
    phases, slots, tasks,
};
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState, ReleaseCause, Shape},
        events::{AllocationActive, AllocationFailed, AllocationReleased},
        money::Meter,
    },
    store::{
        allocations::{self, Along},
        claims, progress,
    },
};

/// `requested` becomes `provisioning`; its slots are used from now on.
pub async fn begin(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = allocation_lock(cx).await?;
    if allocation.state != AllocationState::Requested {
        return Err(tasks::fail(WorkflowFailure::StateChanged, ""));
    }
    slots_occupy(cx.tx, &allocation.slot_ids).await?;
    allocations::step(cx.tx, &allocation, AllocationEvent::Provision, Along::default()).await?;
    Step::done()
}

/// The allocation, as long as it is being provisioned.
pub async fn provisioning(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = allocation_lock(cx).await?;
    if allocation.state == AllocationState::Provisioning {
        Ok(allocation)
    } else {
        Err(tasks::fail(WorkflowFailure::StateChanged, ""))
    }
}

/// People may have changed who has access since the request: the machine gets it before anybody is let in.
pub async fn keys(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = provisioning(cx).await?;
    if allocation.access_version <= FIRST_KEYS {
        return Step::done_with(&FIRST_KEYS);
    }
    keys_send(capacity, cx, &allocation).await
}

/// The machine has it.
pub async fn keys_reported(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = provisioning(cx).await?;
    let Some(version) = keys_arrived(cx, &allocation, signal).await? else {
        return Err(tasks::fail(WorkflowFailure::OrderExpired, "keys"));
    };
    phases::done(cx.tx, &allocation, "keys", "").await?;
    Step::done_with(&version)
}

/// `provisioning` becomes `active`, and its meter runs from this transaction on.
pub async fn activate(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    reached_at: Option<(&str, u16)>,
) -> Result<Step, StepError> {
    let allocation = provisioning(cx).await?;
    let installed = cx.output::<i64>("keys")?.unwrap_or(FIRST_KEYS);
    if let Some((host, port)) = reached_at {
        progress::reached_at(cx.tx, allocation.id, host, port).await?;
    }
    progress::keys_installed(cx.tx, allocation.id, installed).await?;
    let active = allocations::step(cx.tx, &allocation, AllocationEvent::Activate, Along::default()).await?;
    let Some(at) = active.meter_opened_at else { return Err(StepError::bug("the meter was not opened")) };
    capacity.money.meter_open(cx.tx, &meter(&active), at).await?;
    cx.tx.emit(&AllocationActive {
        allocation_id: active.id,
        project_id: active.project_id,
        sku: active.sku.clone(),
        gpus: active.gpus,
        price_unit: active.price_unit.name().to_owned(),
        unit_price_minor: active.unit_price_minor,
        currency: active.currency.clone(),
        meter_opened_at: at,
    })?;
    if active.access_version > installed {
        let input = LaunchInput { allocation_id: active.id };
        match saga::start(cx.tx, &ACCESS, &active.access_subject(), cx.org, &input).await {
            Ok(_) | Err(saga::StartError::AlreadyRunning) => {}
            Err(error) => return Err(StepError::retry(FailureCode::Internal, error.to_string())),
        }
    }
    Step::done()
}

fn meter(allocation: &Allocation) -> Meter {
    Meter {
        allocation: allocation.id,
        org: allocation.org_id,
        project: allocation.project_id,
        person: Some(allocation.creator_id),
        sku: allocation.sku.clone(),
        price_unit: allocation.price_unit,
        units: allocation.price_unit.units(allocation.gpus),
        unit_price_minor: allocation.unit_price_minor,
        currency: allocation.currency.clone(),
    }
}

/// A launch that came to nothing holds nothing. When it could not all be taken back, its slots are fenced until
/// somebody has cleaned them; the project has nothing to do with that any more.
pub async fn ended(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end == RunEnd::Succeeded {
        return Ok(());
    }
    let Some(allocation) = allocation_lock_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    if !matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
        return Ok(());
    }
    let reason = EndReason::of_run(cx.failure, cx.cancel_reason);
    let mut to_clean = Vec::new();
    if end == RunEnd::Undone {
        to_clean = reservation_undo(cx.tx, &allocation).await?;
        // Otherwise the next launch would be given the same sick machine, and the next.
        if reason.is_machine_fault() {
            slots_doubt(cx.tx, allocation.node_id, &allocation.slot_ids).await?;
        }
    } else {
        let why = format!(
            "A launch failed and its undo failed ({}). Bring the node back online, then retry the cleanup of the slot.",
            cx.failure.map_or(reason.sentence.as_str(), |failure| failure.text.as_str())
        );
        slots::fence(cx.tx, &allocation.slot_ids, &why).await?;
    }
    end_launch(capacity, cx.tx, &allocation, reason.along()).await?;
    cleanup_start(cx.tx, &allocation, to_clean).await
}

/// Nothing of the launch is left. Whoever had an account on the whole machine may have been there, though: its slots are
/// sold again after the workflow that follows a release, with a new key of the node. Answers the slots that wait for it.
async fn reservation_undo(tx: &mut WriteTx, allocation: &Allocation) -> Result<Vec<SlotId>, Failure> {
    if allocation.shape != Shape::Baremetal {
        slots::free_undone(tx, &allocation.slot_ids).await?;
        return Ok(Vec::new());
    }
    slots::unreserve(tx, &allocation.slot_ids).await?;
    slots::to_cleaning(tx, &allocation.slot_ids).await
}

/// Cleans slots of an allocation that is over; nothing to do for none.
pub async fn cleanup_start(
    tx: &mut WriteTx,
    allocation: &Allocation,
    slot_ids: Vec<SlotId>,
) -> Result<(), Failure> {
    let Some(first) = slot_ids.first().map(ToString::to_string) else { return Ok(()) };
    let input = CleanupInput { allocation_id: allocation.id, slot_ids };
    match saga::start(tx, &CLEANUP, &first, Some(allocation.org_id), &input).await {
        Ok(_) | Err(StartError::AlreadyRunning) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A launch that no workflow takes further, and that somebody wants ended. What there is of it is not known, so its
/// slots are fenced.
pub async fn abandoned(
    capacity: &Capacity,
    tx: &mut WriteTx,
    allocation: &Allocation,
    cause: ReleaseCause,
    reason: &str,
) -> Result<Allocation, Failure> {
    let why = "The workflow of a launch was lost. Retry the cleanup of the slot.";
    slots::fence(tx, &allocation.slot_ids, why).await?;
    end_launch(capacity, tx, allocation, Along { reason, cause: Some(cause), failure_code: None }).await
}

/// It holds nothing from now on, and was never billed. One that somebody released is `released`, any other `failed`.
async fn end_launch(
    capacity: &Capacity,
    tx: &mut WriteTx,
    allocation: &Allocation,
    along: Along<'_>,
) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    claims::free(tx, allocation.id, now).await?;
    let wanted = along.cause.is_some() || allocation.release_cause.is_some();
    let event = if wanted { AllocationEvent::Released } else { AllocationEvent::Fail };
    let after = allocations::step(tx, allocation, event, along).await?;
    capacity.money.launch_failed(tx, allocation.id).await?;
    let (allocation_id, project_id) = (allocation.id, allocation.project_id);
    if wanted {
        tx.emit(&AllocationReleased { allocation_id, project_id })?;
    } else {
        tx.emit(&AllocationFailed {
            allocation_id,
            project_id,
            group_id: allocation.group_id,
            failure_code: along.failure_code.map(str::to_owned),
            reason: along.reason.to_owned(),
            creator_id: allocation.creator_user(),
        })?;
    }
    Ok(after)
}
