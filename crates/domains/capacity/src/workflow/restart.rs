//! Restart the machine of an active allocation. Whatever comes of it, the allocation stays what it is.

use async_trait::async_trait;
use kernel::Failure;
use node_proto::catalog::{HealthProbe, ProbeProfile, Reboot, VmRestart};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{held, held_for_end, provision_machine::healthy, restart_spec, tasks, words};
use crate::{
    Capacity,
    model::allocation::{Allocation, AllocationState, Shape},
    store::progress,
};

pub struct Restart(pub Capacity);

async fn active(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = held(cx).await?;
    if allocation.state == AllocationState::Active {
        Ok(allocation)
    } else {
        Err(StepError::fail(words::MOVED_ON))
    }
}

#[async_trait]
impl Saga for Restart {
    fn spec(&self) -> &'static SagaSpec {
        restart_spec()
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        let allocation = active(cx).await?;
        let Some(order) = &allocation.restart_order else { return Err(StepError::fail(words::NO_ORDER)) };
        match (step, allocation.shape) {
            ("restart", Shape::Baremetal) => tasks::ordered::<Reboot>(&self.0, cx, &allocation, order).await,
            ("restart", _) => tasks::ordered::<VmRestart>(&self.0, cx, &allocation, order).await,
            (_, Shape::Baremetal) => tasks::probe(&self.0, cx, &allocation, ProbeProfile::Light).await,
            // It said what it sees when it was back.
            _ => Step::done(),
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        let allocation = active(cx).await?;
        match (step, allocation.shape) {
            ("restart", Shape::Baremetal) => drop(tasks::answer::<Reboot>(signal)?),
            ("restart", _) => {
                let answer = tasks::answer::<VmRestart>(signal)?;
                if i64::from(answer.output.gpus_visible) != i64::from(allocation.gpus) {
                    return Err(StepError::fail(words::GPUS_MISSING));
                }
            }
            _ => healthy(&tasks::answer::<HealthProbe>(signal)?.output, allocation.gpus)?,
        }
        Step::done()
    }

    async fn undo(&self, _: &'static str, _: &mut StepCx<'_>) -> Result<Step, StepError> {
        Step::done()
    }

    async fn resume_undo(&self, _: &'static str, _: &mut StepCx<'_>, _: &Signal) -> Result<Step, StepError> {
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        let Some(allocation) = held_for_end(cx).await? else { return Ok(()) };
        tasks::withdraw(&self.0, cx, &allocation).await?;
        let reason = words::plain(cx.failure);
        let (name, reason) = match end {
            RunEnd::Succeeded => ("restarted", ""),
            RunEnd::Undone | RunEnd::Stuck => ("restart_failed", reason.as_str()),
        };
        let line = progress::Line { name: name.to_owned(), reason, duration_ms: None };
        progress::history(cx.tx, &allocation, "operation", &[line]).await
    }
}
