//! What a call of a step sees and answers.

use chrono::{DateTime, Utc};
use futures_util::future::BoxFuture;
use kernel::{
    Failure,
    ids::{OrgId, SagaRunId},
};
use pg::WriteTx;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    call::Call,
    decide::RunEnd,
    failure::{RunFailure, StepError},
    spec::SagaSpec,
};

/// A definition bound to what its functions work with: made by [`crate::SagaDefinition::bind`].
pub trait Saga: Send + Sync + 'static {
    fn spec(&self) -> &SagaSpec;

    fn call<'a>(
        &'a self,
        step: usize,
        call: &'a Call,
        cx: &'a mut StepCx<'_>,
    ) -> BoxFuture<'a, Result<Step, StepError>>;

    fn ended<'a>(&'a self, cx: &'a mut StepCx<'_>, end: RunEnd) -> BoxFuture<'a, Result<(), Failure>>;
}

/// What a step sees and acts through.
pub struct StepCx<'a> {
    pub tx: &'a mut WriteTx,
    pub run_id: SagaRunId,
    /// Whom the run is about, as it was started.
    pub subject: &'a str,
    pub org: Option<OrgId>,
    /// From 1; retries of a step raise it.
    pub attempt: u32,
    /// Until when this attempt may take.
    pub deadline: DateTime<Utc>,
    /// Why the run goes forward no more, when it does not.
    pub failure: Option<&'a RunFailure>,
    /// What somebody said who asked for it to be taken back.
    pub cancel_reason: Option<&'a str>,
    pub(crate) input: &'a Value,
    pub(crate) outputs: &'a Value,
    pub(crate) step: &'static str,
    pub(crate) undoing: bool,
}

impl StepCx<'_> {
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, StepError> {
        T::deserialize(self.input)
            .map_err(|error| StepError::bug(format!("the input of the run cannot be read: {error}")))
    }

    /// What an earlier step left, if it was done.
    pub fn output<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, StepError> {
        match self.outputs.get(step) {
            None => Ok(None),
            Some(value) => T::deserialize(value)
                .map(Some)
                .map_err(|error| StepError::bug(format!("the output of {step} cannot be read: {error}"))),
        }
    }

    /// The step that is called.
    pub fn step(&self) -> &'static str {
        self.step
    }

    /// The key under which this attempt of this step may be woken: unique, and stale as soon as the step goes on.
    pub fn wake_key(&self) -> String {
        wake_key(self.run_id, self.step, self.undoing, self.attempt)
    }
}

pub(crate) fn wake_key(run: SagaRunId, step: &str, undoing: bool, attempt: u32) -> String {
    let way = if undoing { "undo" } else { "run" };
    format!("{run}/{step}/{way}/{attempt}")
}

/// How a call of a step ended well.
#[derive(Debug)]
pub enum Step {
    Done(Value),
    /// The transaction commits. Nothing to do until somebody calls [`crate::wake`] with [`StepCx::wake_key`], or the attempt's time is over.
    Suspended,
    /// Called again after a while (from the beginning, not resumed): for what cannot call us back. The same attempt; when
    /// its time is over there is one last call, and anything but done is then a failed attempt.
    Again {
        after: std::time::Duration,
    },
}

impl Step {
    pub fn done() -> Result<Self, StepError> {
        Ok(Self::Done(Value::Null))
    }

    pub fn done_with<T: Serialize>(output: &T) -> Result<Self, StepError> {
        Ok(Self::Done(serde_json::to_value(output)?))
    }
}

/// What woke a suspended step.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// What the waker brought.
    Woken(Value),
    TimedOut,
}
