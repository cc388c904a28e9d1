//! Provision a virtual machine with slots of its own. Its readiness is that it answers and sees its GPUs.

use async_trait::async_trait;
use kernel::Failure;
use node_proto::catalog::{ProvisionedVm, VmProvision, VmRelease};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{held, launch, phases, provision_spec, tasks, words};
use crate::{Capacity, model::allocation::Shape};

pub struct ProvisionSlice(pub Capacity);

#[async_trait]
impl Saga for ProvisionSlice {
    fn spec(&self) -> &'static SagaSpec {
        provision_spec(Shape::GpuSlice)
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        match step {
            "begin" => launch::begin(cx).await,
            "machine" => {
                let allocation = launch::provisioning(cx).await?;
                tasks::ordered::<VmProvision>(&self.0, cx, &allocation, &allocation.work_order).await
            }
            "keys" => launch::keys(&self.0, cx).await,
            _ => {
                let Some(vm) = cx.output::<ProvisionedVm>("machine")? else {
                    return Err(tasks::fail(words::UNREADABLE, "no machine"));
                };
                launch::activate(&self.0, cx, Some((&vm.ssh_host, vm.ssh_port))).await
            }
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        if step == "keys" {
            return launch::keys_told(cx, signal).await;
        }
        let answer = tasks::answer::<VmProvision>(signal)?;
        let allocation = launch::provisioning(cx).await?;
        if i64::from(answer.output.gpus_visible) != i64::from(allocation.gpus) {
            return Err(StepError::fail(words::GPUS_MISSING));
        }
        phases::told::<VmProvision>(cx.tx, &allocation, step, &answer.phases, "").await?;
        Step::done_with(&answer.output)
    }

    async fn undo(&self, _: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        let allocation = held(cx).await?;
        tasks::withdraw(&self.0, cx, &allocation).await?;
        tasks::ordered::<VmRelease>(&self.0, cx, &allocation, &allocation.work_order).await
    }

    async fn resume_undo(
        &self,
        _: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        let answer = tasks::answer::<VmRelease>(signal)?;
        let allocation = held(cx).await?;
        let evidence = super::release_slice::proven(cx, &allocation, &answer.output).await?;
        phases::told::<VmRelease>(cx.tx, &allocation, "take_back", &answer.phases, &evidence).await?;
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        launch::over(&self.0, cx, end).await
    }
}
