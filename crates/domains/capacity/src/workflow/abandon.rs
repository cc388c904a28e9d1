//! End a launch that lost its workflow and that somebody released: it holds nothing any more, and its slots are cleaned by
//! a workflow of their own.

use async_trait::async_trait;
use kernel::Failure;
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{abandon_spec, held, launch, tasks::withdraw_of};
use crate::{
    Capacity,
    model::allocation::{AllocationState, ReleaseCause},
    store::endings,
};

pub struct Abandon(pub Capacity);

#[async_trait]
impl Saga for Abandon {
    fn spec(&self) -> &'static SagaSpec {
        abandon_spec()
    }

    async fn run(&self, _: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        let allocation = held(cx).await?;
        if !matches!(allocation.state, AllocationState::Requested | AllocationState::Provisioning) {
            return Step::done();
        }
        for lost in saga::runs_before(cx.tx.conn(), cx.subject, cx.run_id).await? {
            withdraw_of(&self.0, cx, &allocation, lost).await?;
        }
        let cause = allocation.release_cause.clone();
        let cause = cause.as_deref().unwrap_or(ReleaseCause::User.name());
        let reason = "released while it was being launched";
        launch::abandoned(&self.0, cx.tx, &allocation, cause, reason).await?;
        let slot_ids = endings::blocked(cx.tx.conn(), allocation.id, &allocation.slot_ids).await?;
        fleet::api::slots_retry_cleaning(cx.tx, &slot_ids).await?;
        launch::cleanup_start(cx.tx, &allocation, slot_ids).await?;
        Step::done()
    }

    async fn resume(&self, _: &'static str, _: &mut StepCx<'_>, _: &Signal) -> Result<Step, StepError> {
        Step::done()
    }

    async fn undo(&self, _: &'static str, _: &mut StepCx<'_>) -> Result<Step, StepError> {
        Step::done()
    }

    async fn resume_undo(&self, _: &'static str, _: &mut StepCx<'_>, _: &Signal) -> Result<Step, StepError> {
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        if end != RunEnd::Succeeded {
            tracing::error!(run_id = %cx.run_id, failure = cx.failure, "a lost launch could not be ended; release it again");
        }
        Ok(())
    }
}
