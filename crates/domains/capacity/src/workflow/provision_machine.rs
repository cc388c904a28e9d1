//! Provision a whole machine: an account on it, the keys, a look at its drivers.

use async_trait::async_trait;
use kernel::Failure;
use node_proto::catalog::{DeprovisionUser, HealthProbe, ProbeProfile, ProvisionUser};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{held, launch, phases, provision_spec, tasks, words};
use crate::{Capacity, model::allocation::Shape};

pub struct ProvisionMachine(pub Capacity);

#[async_trait]
impl Saga for ProvisionMachine {
    fn spec(&self) -> &'static SagaSpec {
        provision_spec(Shape::Baremetal)
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        match step {
            "begin" => launch::begin(cx).await,
            "account" => {
                let allocation = launch::provisioning(cx).await?;
                tasks::ordered::<ProvisionUser>(&self.0, cx, &allocation, &allocation.work_order).await
            }
            "keys" => launch::keys(&self.0, cx).await,
            "driver_check" => {
                let allocation = launch::provisioning(cx).await?;
                tasks::probe(&self.0, cx, &allocation, ProbeProfile::Light).await
            }
            _ => launch::activate(&self.0, cx, None).await,
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        match step {
            "account" => {
                let answer = tasks::answer::<ProvisionUser>(signal)?;
                let allocation = launch::provisioning(cx).await?;
                if i64::from(answer.output.uid) != i64::from(allocation.uid) {
                    return Err(tasks::fail(words::UNREADABLE, "another account"));
                }
                phases::told::<ProvisionUser>(cx.tx, &allocation, step, &answer.phases, "").await?;
                Step::done()
            }
            "keys" => launch::keys_told(cx, signal).await,
            _ => {
                let answer = tasks::answer::<HealthProbe>(signal)?;
                let allocation = launch::provisioning(cx).await?;
                healthy(&answer.output, allocation.gpus)?;
                phases::told::<HealthProbe>(cx.tx, &allocation, step, &answer.phases, "").await?;
                Step::done()
            }
        }
    }

    async fn undo(&self, _: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        let allocation = held(cx).await?;
        tasks::withdraw(&self.0, cx, &allocation).await?;
        tasks::ordered::<DeprovisionUser>(&self.0, cx, &allocation, &allocation.work_order).await
    }

    async fn resume_undo(
        &self,
        _: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        let answer = tasks::answer::<DeprovisionUser>(signal)?;
        let allocation = held(cx).await?;
        phases::told::<DeprovisionUser>(cx.tx, &allocation, "take_back", &answer.phases, "").await?;
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        launch::over(&self.0, cx, end).await
    }
}

/// All checks passed and every GPU is there: whoever says that all is well must say so of each part.
pub fn healthy(report: &node_proto::catalog::HealthReport, gpus: i32) -> Result<(), StepError> {
    let failed: Vec<&str> =
        report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
    if !report.passed || !failed.is_empty() {
        tracing::warn!(checks = ?failed, "a machine did not pass its check");
        return Err(StepError::fail(words::SICK));
    }
    if usize::try_from(gpus).is_ok_and(|gpus| report.gpus.len() < gpus) {
        return Err(StepError::fail(words::GPUS_MISSING));
    }
    Ok(())
}
