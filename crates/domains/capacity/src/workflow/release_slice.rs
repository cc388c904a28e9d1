//! Release a virtual machine: it goes, its disks are wiped and its devices reset, and the node proves it.

use node_proto::catalog::{ReleasedVm, VmRelease};
use saga::{OnFailure, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    failure::WorkflowFailure,
    phases, release_common,
    steps::{DAY, waits, writes},
    tasks,
};
use crate::{Capacity, model::allocation::Allocation};

pub static RELEASE_SLICE: SagaDefinition<Capacity> = SagaDefinition {
    name: "release_slice",
    version: 1,
    steps: &[
        writes("begin", step_fn!(release_common::begin)),
        waits("machine", step_fn!(machine_remove), resume_fn!(machine_removed)),
        writes("free", step_fn!(release_common::free)),
    ],
    deadline: DAY.saturating_mul(14),
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.release_run",
    ended: end_fn!(release_common::ended),
};

async fn machine_remove(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = release_common::releasing(cx).await?;
    tasks::ordered::<VmRelease>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn machine_removed(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<VmRelease>(signal)?;
    let allocation = release_common::releasing(cx).await?;
    let evidence = proven_clean(cx, &allocation, &answer.output).await?;
    phases::reported::<VmRelease>(cx.tx, &allocation, "machine", &answer.phases, &evidence).await?;
    Step::done()
}

/// A machine that was there must have left wiped disks and reset devices behind. Where there was none (any more), the
/// node has looked and found nothing.
pub async fn proven_clean(
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    released: &ReleasedVm,
) -> Result<String, StepError> {
    let slots = fleet::api::slot_facts(cx.tx.conn(), &allocation.slot_ids).await?;
    let disks = slots.iter().filter(|slot| slot.nvme_device.is_some()).count();
    let gpus = slots.iter().filter(|slot| slot.pci_address.is_some()).count();
    let enough = |count: u32, least: usize| usize::try_from(count).is_ok_and(|count| count >= least);
    if released.machine_removed
        && !(enough(released.disks_wiped, disks) && enough(released.devices_reset, gpus))
    {
        return Err(tasks::fail(WorkflowFailure::NotProvenClean, ""));
    }
    Ok(format!("{} disks wiped, {} devices reset", released.disks_wiped, released.devices_reset))
}
