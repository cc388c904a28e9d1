//! What a domain writes: the code behind the steps.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{OrgId, SagaRunId},
};
use pg::WriteTx;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::spec::SagaSpec;

/// The code of one saga. Each call has its effect through the transaction in [`StepCx`], which commits together
/// with the step's record, or not at all; so what is done in the database is done once. What is done elsewhere
/// must bear repetition.
#[async_trait]
pub trait Saga: Send + Sync + 'static {
    fn spec(&self) -> &'static SagaSpec;

    /// Begins a step, or does it whole.
    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError>;

    /// Goes on after a [`Step::Suspended`]: what was waited for has come, or its time is over.
    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError>;

    /// Takes a step back. It may have happened whole, in part, or not at all.
    async fn undo(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError>;

    /// Goes on with taking a step back.
    async fn resume_undo(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError>;

    /// The run is over; called in the transaction that ends it.
    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure>;
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
    /// Why the run is being taken back, when it is.
    pub failure: Option<&'a str>,
    pub(crate) input: &'a Value,
    pub(crate) outputs: &'a Value,
    pub(crate) step: &'static str,
    pub(crate) undoing: bool,
}

impl StepCx<'_> {
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, StepError> {
        T::deserialize(self.input)
            .map_err(|error| StepError::fail(format!("the input of the run cannot be read: {error}")))
    }

    /// What an earlier step left, if it was done.
    pub fn output<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, StepError> {
        match self.outputs.get(step) {
            None => Ok(None),
            Some(value) => T::deserialize(value)
                .map(Some)
                .map_err(|error| StepError::fail(format!("the output of {step} cannot be read: {error}"))),
        }
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
    /// Called again after a while (`run` or `undo`, not `resume`): for what cannot call us back. The same attempt; when
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
        serde_json::to_value(output).map(Self::Done).map_err(|error| StepError::fail(error.to_string()))
    }
}

/// How a call of a step ended badly; its transaction is rolled back.
#[derive(Debug)]
pub enum StepError {
    /// Another attempt may do better, as long as the step has some left.
    Retry(String),
    /// No attempt can.
    Fail(String),
}

impl StepError {
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry(reason.into())
    }

    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Fail(reason.into())
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Retry(reason) | Self::Fail(reason) => reason,
        }
    }
}

/// A lost race or a database that is away passes; what a use case refuses does not.
impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Problem(problem) => {
                let passes = problem.code == kernel::Code::Conflict || problem.code.status() >= 500;
                if passes { Self::Retry(problem.to_string()) } else { Self::Fail(problem.to_string()) }
            }
            Failure::Internal(error) => Self::Retry(error.to_string()),
        }
    }
}

/// A database that is away or a lost race passes; the number of attempts is the limit for what does not.
impl From<sqlx::Error> for StepError {
    fn from(error: sqlx::Error) -> Self {
        Self::Retry(error.to_string())
    }
}

impl From<serde_json::Error> for StepError {
    fn from(error: serde_json::Error) -> Self {
        Self::Fail(error.to_string())
    }
}

/// What woke a suspended step.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// What the waker brought.
    Woken(Value),
    TimedOut,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Succeeded,
    /// A step failed, or the run was cancelled; everything that was done is taken back.
    Undone,
    /// It failed and could not all be taken back: a person must look.
    Stuck,
}

impl RunEnd {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Undone => "undone",
            Self::Stuck => "stuck",
        }
    }
}
