//! Calls of a domain's code, with their limits.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;

use crate::{
    decide::RunEnd,
    failure::{FailureCode, StepError},
    spec::StepSpec,
    step::{Saga, Signal, Step, StepCx},
};

/// A call works on the database and must leave time in the lease for its commit.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Which function of a step is called.
pub enum Call {
    Run,
    Resume(Signal),
    Undo,
    ResumeUndo(Signal),
}

impl Call {
    pub const fn resumes(&self) -> bool {
        matches!(self, Self::Resume(_) | Self::ResumeUndo(_))
    }
}

pub(crate) async fn step(
    saga: &dyn Saga,
    (index, step): (usize, &StepSpec),
    cx: &mut StepCx<'_>,
    call: &Call,
) -> Result<Step, StepError> {
    let limit = CALL_LIMIT.min(step.timeout.max(Duration::from_secs(1)));
    let answer = guarded(limit, saga.call(index, call, cx)).await?;
    let waits = match call {
        Call::Run | Call::Resume(_) => step.waits,
        Call::Undo | Call::ResumeUndo(_) => step.undo_waits,
    };
    if matches!(answer, Step::Suspended) && !waits {
        return Err(StepError::bug(format!("{} suspends, and nothing would resume it", step.name)));
    }
    Ok(answer)
}

/// Tells the domain of the end, in the transaction that ends the run.
pub(crate) async fn ended(saga: &dyn Saga, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), StepError> {
    guarded(CALL_LIMIT, async { saga.ended(cx, end).await.map_err(StepError::from) }).await
}

/// Code that panics or never ends fails like any other.
async fn guarded<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, StepError>>,
) -> Result<T, StepError> {
    match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(StepError::retry(FailureCode::Bug, format!("the code panicked: {text}")))
        }
        Err(_) => Err(StepError::retry(FailureCode::TimedOut, "the call took too long")),
    }
}
