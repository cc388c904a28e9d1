//! Provision a whole machine: an account on it, the keys, a look at its drivers.

use identity::api::ssh_key_check;
use node_proto::catalog::{DeprovisionUser, HealthProbe, HealthReport, ProbeProfile, ProvisionUser};
use saga::{OnFailure, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    allocation_lock,
    failure::WorkflowFailure,
    phases, provision_common,
    steps::{DAY, waits, waits_with_undo, writes},
    tasks,
};
use crate::{Capacity, store::progress};

/// A machine has one of each type.
const MOST_HOST_KEYS: usize = 8;

// What `begin` did to the slots is taken back with the end of the run, in one transaction with the claims.
pub static PROVISION_MACHINE: SagaDefinition<Capacity> = SagaDefinition {
    name: "provision_machine",
    version: 1,
    steps: &[
        writes("begin", step_fn!(provision_common::begin)),
        waits_with_undo(
            "account",
            (step_fn!(account_make), resume_fn!(account_made)),
            (step_fn!(account_remove), resume_fn!(account_removed)),
        ),
        waits("keys", step_fn!(provision_common::keys), resume_fn!(provision_common::keys_reported)),
        waits("driver_check", step_fn!(drivers_check), resume_fn!(drivers_checked)),
        writes("activate", step_fn!(activate)),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.provision",
    ended: end_fn!(provision_common::ended),
};

async fn account_make(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = provision_common::provisioning(cx).await?;
    tasks::ordered::<ProvisionUser>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn account_made(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<ProvisionUser>(signal)?;
    let allocation = provision_common::provisioning(cx).await?;
    if i64::from(answer.output.uid) != i64::from(allocation.uid) {
        return Err(tasks::fail(WorkflowFailure::AnswerUnreadable, "another account"));
    }
    progress::host_keys_known(cx.tx, allocation.id, &host_keys(&answer.output.host_keys)).await?;
    phases::reported::<ProvisionUser>(cx.tx, &allocation, "account", &answer.phases, "").await?;
    Step::done()
}

/// Those that are keys, as they are written in a file of known hosts. A node may say anything: what is no key would become a
/// line of such a file.
fn host_keys(reported: &[String]) -> Vec<String> {
    let keys = reported.iter().take(MOST_HOST_KEYS).filter_map(|key| ssh_key_check(key).ok());
    keys.map(|key| key.public_key).collect()
}

async fn account_remove(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = allocation_lock(cx).await?;
    tasks::withdraw(capacity, cx, &allocation).await?;
    tasks::ordered::<DeprovisionUser>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn account_removed(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<DeprovisionUser>(signal)?;
    let allocation = allocation_lock(cx).await?;
    phases::reported::<DeprovisionUser>(cx.tx, &allocation, "take_back", &answer.phases, "").await?;
    Step::done()
}

async fn drivers_check(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = provision_common::provisioning(cx).await?;
    tasks::probe(capacity, cx, &allocation, ProbeProfile::Light).await
}

async fn drivers_checked(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<HealthProbe>(signal)?;
    let allocation = provision_common::provisioning(cx).await?;
    check_passed(&answer.output, allocation.gpus)?;
    phases::reported::<HealthProbe>(cx.tx, &allocation, "driver_check", &answer.phases, "").await?;
    Step::done()
}

async fn activate(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    provision_common::activate(capacity, cx, None).await
}

/// All checks passed and every GPU is there: whoever says that all is well must say so of each part.
pub fn check_passed(report: &HealthReport, gpus: i32) -> Result<(), StepError> {
    let failed: Vec<&str> =
        report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
    if !report.passed || !failed.is_empty() {
        tracing::warn!(checks = ?failed, "a machine did not pass its check");
        return Err(tasks::fail(WorkflowFailure::CheckFailed, ""));
    }
    if usize::try_from(gpus).is_ok_and(|gpus| report.gpus.len() < gpus) {
        return Err(tasks::fail(WorkflowFailure::GpusMissing, ""));
    }
    Ok(())
}
