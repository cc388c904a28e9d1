//! Provision a virtual machine with slots of its own. Its readiness is that it answers and sees its GPUs.

use node_proto::catalog::{ProvisionedVm, VmProvision, VmRelease};
use saga::{OnFailure, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    allocation_lock,
    failure::WorkflowFailure,
    phases, provision_common,
    release_slice::proven_clean,
    steps::{DAY, waits, waits_with_undo, writes},
    tasks,
};
use crate::Capacity;

pub static PROVISION_SLICE: SagaDefinition<Capacity> = SagaDefinition {
    name: "provision_slice",
    version: 1,
    steps: &[
        writes("begin", step_fn!(provision_common::begin)),
        waits_with_undo(
            "machine",
            (step_fn!(machine_make), resume_fn!(machine_made)),
            (step_fn!(machine_remove), resume_fn!(machine_removed)),
        ),
        waits("keys", step_fn!(provision_common::keys), resume_fn!(provision_common::keys_reported)),
        writes("activate", step_fn!(activate)),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.provision",
    ended: end_fn!(provision_common::ended),
};

async fn machine_make(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = provision_common::provisioning(cx).await?;
    tasks::ordered::<VmProvision>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn machine_made(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<VmProvision>(signal)?;
    let allocation = provision_common::provisioning(cx).await?;
    if i64::from(answer.output.gpus_visible) != i64::from(allocation.gpus) {
        return Err(tasks::fail(WorkflowFailure::GpusMissing, ""));
    }
    phases::reported::<VmProvision>(cx.tx, &allocation, "machine", &answer.phases, "").await?;
    Step::done_with(&answer.output)
}

async fn machine_remove(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = allocation_lock(cx).await?;
    tasks::withdraw(capacity, cx, &allocation).await?;
    tasks::ordered::<VmRelease>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn machine_removed(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<VmRelease>(signal)?;
    let allocation = allocation_lock(cx).await?;
    let evidence = proven_clean(cx, &allocation, &answer.output).await?;
    phases::reported::<VmRelease>(cx.tx, &allocation, "take_back", &answer.phases, &evidence).await?;
    Step::done()
}

async fn activate(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let Some(vm) = cx.output::<ProvisionedVm>("machine")? else {
        return Err(StepError::bug("the step machine left no output"));
    };
    provision_common::activate(capacity, cx, Some((&vm.ssh_host, vm.ssh_port))).await
}
