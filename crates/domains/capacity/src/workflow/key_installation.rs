//! Bring the complete key set to an active machine, until it has the one that people asked for last.

use std::time::Duration;

use kernel::Failure;
use saga::{OnFailure, RunEnd, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};

use super::{
    allocation_lock, allocation_lock_for_end,
    failure::EndReason,
    key_set,
    steps::{DAY, waits},
    tasks,
};
use crate::{
    Capacity,
    model::{allocation::AllocationState, history::HistoryKind},
    store::progress,
};

pub static ACCESS: SagaDefinition<Capacity> = SagaDefinition {
    name: "access",
    version: 1,
    steps: &[waits("install", step_fn!(install), resume_fn!(installed))],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.access_run",
    ended: end_fn!(ended),
};

async fn install(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = allocation_lock(cx).await?;
    // A machine that goes takes its keys along.
    if allocation.state != AllocationState::Active || allocation.installed_access >= allocation.access_version
    {
        return Step::done();
    }
    key_set::keys_send(capacity, cx, &allocation).await
}

async fn installed(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    // Locked, so that whoever asks for another set finds this run live, or over.
    let allocation = allocation_lock(cx).await?;
    let Some(version) = key_set::keys_arrived(cx, &allocation, signal).await? else {
        return Ok(Step::Again { after: Duration::ZERO });
    };
    progress::keys_installed(cx.tx, allocation.id, version).await?;
    let line = progress::Line { name: "keys_installed".to_owned(), reason: "", duration_ms: None };
    progress::history(cx.tx, &allocation, HistoryKind::Access, &[line]).await?;
    if allocation.access_version > version {
        return Ok(Step::Again { after: Duration::ZERO });
    }
    Step::done()
}

async fn ended(capacity: &Capacity, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    if end == RunEnd::Succeeded {
        return Ok(());
    }
    let Some(allocation) = allocation_lock_for_end(cx).await? else { return Ok(()) };
    tasks::withdraw(capacity, cx, &allocation).await?;
    if allocation.state != AllocationState::Active {
        return Ok(());
    }
    let reason = EndReason::of_run(cx.failure, cx.cancel_reason);
    tracing::error!(
        allocation_id = %allocation.id,
        failure_code = reason.code.name(),
        "a machine does not have the keys that were asked for"
    );
    let line =
        progress::Line { name: "keys_not_installed".to_owned(), reason: &reason.sentence, duration_ms: None };
    progress::history(cx.tx, &allocation, HistoryKind::Access, &[line]).await
}
