//! Clean slots that a launch left behind, with the order of its allocation. The allocation itself is over. A whole machine
//! is treated as after a release: somebody may have been on it.

use async_trait::async_trait;
use kernel::Failure;
use node_proto::catalog::{DeprovisionUser, ProbeProfile, VmRelease};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};

use super::{
    CleanupInput, cleanup_spec, held, held_for_end, release_machine, release_slice, slots,
    specs::{WAITS_FOR, cleanup_spec_v1},
    tasks, words,
};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
};

pub struct Cleanup {
    capacity: Capacity,
    spec: &'static SagaSpec,
}

impl Cleanup {
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, spec: cleanup_spec() }
    }

    /// For runs that the release before began.
    pub fn v1(capacity: Capacity) -> Self {
        Self { capacity, spec: cleanup_spec_v1() }
    }

    /// Whether the step has a whole machine installed anew.
    fn installs(&self, step: &str) -> bool {
        step == "reimage" || (step == "verify" && self.spec.version == 1)
    }
}

/// The allocation, if nobody else sees to its slots.
async fn left(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let allocation = held(cx).await?;
    if allocation.state.is_over() { Ok(allocation) } else { Err(StepError::fail(words::MOVED_ON)) }
}

#[async_trait]
impl Saga for Cleanup {
    fn spec(&self) -> &'static SagaSpec {
        self.spec
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        if self.installs(step) {
            let allocation = release_machine::unheld(cx).await?;
            if allocation.shape == Shape::Baremetal
                && let Some(wait) =
                    release_machine::reimage(&self.capacity, cx, &allocation, WAITS_FOR).await?
            {
                return Ok(wait);
            }
        }
        let allocation = left(cx).await?;
        let input: CleanupInput = cx.input()?;
        match (step, allocation.shape) {
            ("begin", _) => {
                slots::to_cleaning(cx.tx, &input.slot_ids).await?;
                Step::done()
            }
            ("clean", Shape::Baremetal) => {
                tasks::ordered::<DeprovisionUser>(&self.capacity, cx, &allocation, &allocation.work_order)
                    .await
            }
            ("clean", _) => {
                tasks::ordered::<VmRelease>(&self.capacity, cx, &allocation, &allocation.work_order).await
            }
            ("reimage", _) => Step::done(),
            ("verify", Shape::Baremetal) => {
                if let Some(wait) = release_machine::new_key(cx, &allocation).await? {
                    return Ok(wait);
                }
                tasks::probe(&self.capacity, cx, &allocation, ProbeProfile::BetweenTenants).await
            }
            // The node proved it when it cleaned.
            ("verify", _) => Step::done(),
            (_, shape) => {
                if shape == Shape::Baremetal {
                    release_machine::clean(cx)?;
                }
                fleet::api::slots_cleaned(cx.tx, &input.slot_ids).await?;
                Step::done()
            }
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        let allocation = left(cx).await?;
        if step == "verify" {
            return release_machine::verified(cx, &allocation, signal).await;
        }
        if allocation.shape == Shape::Baremetal {
            tasks::answer::<DeprovisionUser>(signal)?;
        } else {
            let answer = tasks::answer::<VmRelease>(signal)?;
            release_slice::proven(cx, &allocation, &answer.output).await?;
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
        let input: CleanupInput = match cx.input() {
            Ok(input) => input,
            Err(error) => return Err(Failure::from(std::io::Error::other(error.reason().to_owned()))),
        };
        if let Some(allocation) = held_for_end(cx).await? {
            tasks::withdraw(&self.capacity, cx, &allocation).await?;
        }
        let why = format!(
            "Cleaning it again failed ({}). See to the node and retry, or force it once somebody has looked.",
            cx.failure.unwrap_or_default()
        );
        slots::fence(cx.tx, &input.slot_ids, &why).await
    }
}
