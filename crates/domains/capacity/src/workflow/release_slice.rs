//! Release a virtual machine: it goes, its disks are wiped and its devices reset, and the node proves it.

use async_trait::async_trait;
use kernel::Failure;
use node_proto::catalog::{ReleasedVm, VmRelease};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{phases, release, release_spec, tasks, words};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
};

pub struct ReleaseSlice(pub Capacity);

#[async_trait]
impl Saga for ReleaseSlice {
    fn spec(&self) -> &'static SagaSpec {
        release_spec(Shape::GpuSlice)
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        match step {
            "begin" => release::begin(cx).await,
            "machine" => {
                let allocation = release::releasing(cx).await?;
                tasks::ordered::<VmRelease>(&self.0, cx, &allocation, &allocation.work_order).await
            }
            _ => release::free(cx).await,
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        let answer = tasks::answer::<VmRelease>(signal)?;
        let allocation = release::releasing(cx).await?;
        let evidence = proven(cx, &allocation, &answer.output).await?;
        phases::told::<VmRelease>(cx.tx, &allocation, step, &answer.phases, &evidence).await?;
        Step::done()
    }

    async fn undo(&self, _: &'static str, _: &mut StepCx<'_>) -> Result<Step, StepError> {
        Step::done()
    }

    async fn resume_undo(&self, _: &'static str, _: &mut StepCx<'_>, _: &Signal) -> Result<Step, StepError> {
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        release::over(&self.0, cx, end).await
    }
}

/// A machine that was there must have left wiped disks and reset devices behind. Where there was none (any more), the
/// node has looked and found nothing.
pub async fn proven(
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
        return Err(StepError::fail(words::NOT_PROVEN));
    }
    Ok(format!("{} disks wiped, {} devices reset", released.disks_wiped, released.devices_reset))
}
