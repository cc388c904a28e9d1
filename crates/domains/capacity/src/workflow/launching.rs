//! What every launch begins and ends with, whatever machine is made in between.

use fleet::api::{slots_doubt, slots_occupy};
use kernel::{Failure, ids::SlotId};
use node_proto::catalog::{
    AccountSpec, InstallAuthorizedKeys, InstallAuthorizedKeysInput, RetainAuthorizedKeys, VmAuthorizedKeys,
    VmAuthorizedKeysInput, VmRetainAuthorizedKeys,
};
use pg::WriteTx;
use saga::{FailureCode, RunEnd, Signal, StartError, Step, StepCx, StepError};

use super::{
    ACCESS, CLEANUP, CleanupInput, LaunchInput,
    failure::{EndReason, WorkflowFailure},
    held, held_for_end, phases, slots, tasks,
};
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState, Shape},
        events::{AllocationActive, AllocationFailed, AllocationReleased},
    },
    service::{access::entitled_keys, money::Meter},
    store::{
        allocations::{self, Along},
        claims, machine_keys,
        progress::{self, KeyTask},
    },
};

/// The version of the key set that goes with the machine itself.
const FIRST_KEYS: i64 = 1;

/// `requested` becomes `provisioning`; its slots are used from now on.
pub async fn begin(_: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = held(cx).await?;
    if allocation.state != AllocationState::Requested {
        return Err(tasks::fail(WorkflowFailure::StateChanged, ""));
    }
    slots_occupy(cx.tx, &allocation.slot_ids).await?;
    allocations::step(cx.tx, &allocation, AllocationEvent::Provision, Along::default()).await?;
    Step::done()
}

/// The allocation, as long as it is being provisioned.
pub async fn provisioning(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = held(cx).await?;
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

/// Sends the complete key set as it is now, and remembers which that was. What a request ordered is sent by that order,
/// without the keys of those who lost access since; otherwise keys can only go.
pub async fn keys_send(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
) -> Result<Step, StepError> {
    let (id, version) = (allocation.id, allocation.access_version);
    let entitled = entitled_keys(cx.tx, allocation).await?;
    machine_keys::mark_removed(cx.tx, id, version, &entitled).await?;
    let keys = machine_keys::list(cx.tx.conn(), id).await?;
    let installed = allocation.installed_access.max(FIRST_KEYS);
    let pending = machine_keys::pending(cx.tx.conn(), id, installed, version).await?;
    if pending.ordered {
        let Some(order) = &allocation.access_order else {
            return Err(tasks::fail(WorkflowFailure::NotOrdered, ""));
        };
        let queued = match allocation.shape {
            Shape::Baremetal => {
                tasks::ordered_keys::<InstallAuthorizedKeys>(capacity, cx, allocation, order, &keys).await?
            }
            Shape::GpuSlice | Shape::CpuVm => {
                tasks::ordered_keys::<VmAuthorizedKeys>(capacity, cx, allocation, order, &keys).await?
            }
        };
        if queued {
            progress::keys_sent(cx.tx, allocation, KeyTask::Install).await?;
            return Ok(Step::Suspended);
        }
        if !pending.removed {
            return Err(tasks::fail(WorkflowFailure::OrderExpired, "keys"));
        }
    }
    progress::keys_sent(cx.tx, allocation, KeyTask::Remove).await?;
    let (owner, username, authorized_keys) = (allocation.subject(), allocation.username.clone(), keys);
    match allocation.shape {
        Shape::Baremetal => {
            let uid = u32::try_from(allocation.uid).map_err(|error| StepError::bug(error.to_string()))?;
            let account = AccountSpec { username, uid, gid: uid };
            let input = InstallAuthorizedKeysInput { account, owner, authorized_keys };
            tasks::key_removal::<RetainAuthorizedKeys>(capacity, cx, allocation, &input).await
        }
        Shape::GpuSlice | Shape::CpuVm => {
            let input = VmAuthorizedKeysInput { owner, username, authorized_keys };
            tasks::key_removal::<VmRetainAuthorizedKeys>(capacity, cx, allocation, &input).await
        }
    }
}

/// Which key set the machine has now. Nothing when keys only went, although a request had ordered some that may not be
/// brought any more.
pub async fn keys_arrived(
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    signal: &Signal,
) -> Result<Option<i64>, StepError> {
    // The answer of all four kinds has the same form.
    drop(tasks::answer::<InstallAuthorizedKeys>(signal)?);
    let (version, task) = progress::keys_sent_last(cx.tx, allocation.id).await?;
    machine_keys::removal_confirmed(cx.tx, allocation.id, version).await?;
    let installed = allocation.installed_access.max(FIRST_KEYS);
    let pending = machine_keys::pending(cx.tx.conn(), allocation.id, installed, version).await?;
    let complete = task == KeyTask::Install || !pending.ordered;
    Ok(complete.then_some(version))
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
        price_unit: active.price_unit.clone(),
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
        price_unit: allocation.price_unit.clone(),
        units: if allocation.price_unit == "gpu_hour" { allocation.gpus } else { 1 },
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
    let Some(allocation) = held_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    if !matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
        return Ok(());
    }
    let reason = EndReason::of_run(cx.failure, cx.cancel_reason);
    let mut to_clean = Vec::new();
    if end == RunEnd::Undone {
        to_clean = take_back(cx.tx, &allocation).await?;
        // Otherwise the next launch would be given the same sick machine, and the next.
        if reason.is_machine_fault() {
            slots_doubt(cx.tx, allocation.node_id, &allocation.slot_ids).await?;
        }
    } else {
        let why = format!(
            "A launch failed and could not be taken back ({}). Bring the node back, then retry the cleanup of the slot.",
            cx.failure.map_or(reason.sentence.as_str(), |failure| failure.text.as_str())
        );
        slots::fence(cx.tx, &allocation.slot_ids, &why).await?;
    }
    end_launch(capacity, cx.tx, &allocation, reason.along()).await?;
    cleanup_start(cx.tx, &allocation, to_clean).await
}

/// Nothing of the launch is left. Whoever had an account on the whole machine may have been there, though: its slots are
/// sold again after the workflow that follows a release, with a new key of the node. Answers the slots that wait for it.
async fn take_back(tx: &mut WriteTx, allocation: &Allocation) -> Result<Vec<SlotId>, Failure> {
    if allocation.shape != Shape::Baremetal {
        slots::give_back(tx, &allocation.slot_ids).await?;
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
    cause: &str,
    reason: &str,
) -> Result<Allocation, Failure> {
    let why = "The workflow of a launch got lost. Retry the cleanup of the slot.";
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
