//! What every launch begins and ends with, whatever machine is made in between.

use fleet::api::{slots_doubt, slots_occupy};
use kernel::Failure;
use node_proto::catalog::{InstallAuthorizedKeys, VmAuthorizedKeys};
use pg::WriteTx;
use saga::{RunEnd, Signal, Step, StepCx, StepError};

use super::{LaunchInput, access_spec, held, held_for_end, phases, slots, tasks, words};
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState, ReleaseCause, Shape},
        events::{AllocationActive, AllocationFailed},
    },
    service::money::Meter,
    store::{
        allocations::{self, Along},
        claims, progress,
    },
};

/// The version of the key set that goes with the machine itself.
const FIRST_KEYS: i64 = 1;

/// `requested` becomes `provisioning`; its slots are used from now on.
pub async fn begin(cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = held(cx).await?;
    if allocation.state != AllocationState::Requested {
        return Err(StepError::fail(words::MOVED_ON));
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
        Err(StepError::fail(words::MOVED_ON))
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
pub async fn keys_told(cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = provisioning(cx).await?;
    let version = keys_arrived(cx, &allocation, signal).await?;
    phases::done(cx.tx, &allocation, "keys", "").await?;
    Step::done_with(&version)
}

/// Sends the complete key set as it is now, and remembers which that was.
pub async fn keys_send(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
) -> Result<Step, StepError> {
    let Some(order) = &allocation.access_order else { return Err(StepError::fail(words::NO_ORDER)) };
    progress::keys_sent(cx.tx, allocation).await?;
    match allocation.shape {
        Shape::Baremetal => tasks::ordered::<InstallAuthorizedKeys>(capacity, cx, allocation, order).await,
        Shape::GpuSlice | Shape::CpuVm => {
            tasks::ordered::<VmAuthorizedKeys>(capacity, cx, allocation, order).await
        }
    }
}

/// Which key set the machine has now.
pub async fn keys_arrived(
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    signal: &Signal,
) -> Result<i64, StepError> {
    match allocation.shape {
        Shape::Baremetal => drop(tasks::answer::<InstallAuthorizedKeys>(signal)?),
        Shape::GpuSlice | Shape::CpuVm => drop(tasks::answer::<VmAuthorizedKeys>(signal)?),
    }
    Ok(progress::keys_sent_last(cx.tx, allocation.id).await?)
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
    let Some(at) = active.meter_opened_at else { return Err(StepError::fail("the meter was not opened")) };
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
        match saga::start(cx.tx, access_spec(), &active.access_subject(), cx.org, &input).await {
            Ok(_) | Err(saga::StartError::AlreadyRunning) => {}
            Err(error) => return Err(StepError::retry(error.to_string())),
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
pub async fn over(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end == RunEnd::Succeeded {
        return Ok(());
    }
    let Some(allocation) = held_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    if !matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
        return Ok(());
    }
    let reason = words::plain(cx.failure);
    if end == RunEnd::Undone {
        slots::give_back(cx.tx, &allocation.slot_ids).await?;
        // Otherwise the next launch would be given the same sick machine, and the next.
        if words::is_machines_fault(&reason) {
            slots_doubt(cx.tx, allocation.node_id, &allocation.slot_ids).await?;
        }
    } else {
        let why = format!(
            "A launch failed and could not be taken back ({}). Bring the node back, then retry the cleanup of the slot.",
            cx.failure.unwrap_or(&reason)
        );
        slots::fence(cx.tx, &allocation.slot_ids, &why).await?;
    }
    failed(capacity, cx.tx, &allocation, Along { reason: &reason, cause: None }).await?;
    Ok(())
}

/// A launch that no workflow takes further. What there is of it is not known, so its slots are fenced.
pub async fn abandoned(
    capacity: &Capacity,
    tx: &mut WriteTx,
    allocation: &Allocation,
    reason: &str,
) -> Result<Allocation, Failure> {
    let why = "The workflow of a launch got lost. Retry the cleanup of the slot.";
    slots::fence(tx, &allocation.slot_ids, why).await?;
    let along = Along { reason, cause: Some(ReleaseCause::Admin.name()) };
    failed(capacity, tx, allocation, along).await
}

/// It holds nothing from now on, and was never billed.
async fn failed(
    capacity: &Capacity,
    tx: &mut WriteTx,
    allocation: &Allocation,
    along: Along<'_>,
) -> Result<Allocation, Failure> {
    let now = tx.db().ambient().now();
    claims::free(tx, allocation.id, now).await?;
    let after = allocations::step(tx, allocation, AllocationEvent::Fail, along).await?;
    capacity.money.launch_failed(tx, allocation.id).await?;
    tx.emit(&AllocationFailed {
        allocation_id: allocation.id,
        project_id: allocation.project_id,
        group_id: allocation.group_id,
        reason: along.reason.to_owned(),
        creator_id: allocation.creator_user(),
    })?;
    Ok(after)
}
