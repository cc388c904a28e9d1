//! Bring the complete key set to an active machine, until it has the one that people asked for last.

use std::time::Duration;

use async_trait::async_trait;
use kernel::Failure;
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{access_spec, held, held_for_end, launch, tasks, words};
use crate::{Capacity, model::allocation::AllocationState, store::progress};

pub struct Access(pub Capacity);

#[async_trait]
impl Saga for Access {
    fn spec(&self) -> &'static SagaSpec {
        access_spec()
    }

    async fn run(&self, _: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        let allocation = held(cx).await?;
        // A machine that goes takes its keys along.
        if allocation.state != AllocationState::Active
            || allocation.installed_access >= allocation.access_version
        {
            return Step::done();
        }
        launch::keys_send(&self.0, cx, &allocation).await
    }

    async fn resume(&self, _: &'static str, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
        // Held, so that whoever asks for another set finds this run live, or over.
        let allocation = held(cx).await?;
        let Some(version) = launch::keys_arrived(cx, &allocation, signal).await? else {
            return Ok(Step::Again { after: Duration::ZERO });
        };
        progress::keys_installed(cx.tx, allocation.id, version).await?;
        let line = progress::Line { name: "keys_installed".to_owned(), reason: "", duration_ms: None };
        progress::history(cx.tx, &allocation, "access", &[line]).await?;
        if allocation.access_version > version {
            return Ok(Step::Again { after: Duration::ZERO });
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
        if end == RunEnd::Succeeded {
            return Ok(());
        }
        let Some(allocation) = held_for_end(cx).await? else { return Ok(()) };
        tasks::withdraw(&self.0, cx, &allocation).await?;
        if allocation.state != AllocationState::Active {
            return Ok(());
        }
        let reason = words::plain(cx.failure);
        tracing::error!(allocation_id = %allocation.id, failure = cx.failure, "a machine does not have the keys that were asked for");
        let line =
            progress::Line { name: "keys_not_installed".to_owned(), reason: &reason, duration_ms: None };
        progress::history(cx.tx, &allocation, "access", &[line]).await
    }
}
