//! A saga with its code: each action of a step stands beside its undo, so a step without a function does not compile.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, ready};
use kernel::Failure;

use crate::{
    call::Call,
    decide::RunEnd,
    failure::StepError,
    spec::{OnFailure, Retry, SagaSpec, StepSpec},
    step::{Saga, Signal, Step, StepCx},
};

/// Begins a step or does it whole; on the way back it takes the step back, which may have happened whole, in part, or not
/// at all. Written by [`step_fn`](crate::step_fn) from an `async fn`.
pub type StepFn<S> = for<'a, 'b> fn(&'a S, &'a mut StepCx<'b>) -> BoxFuture<'a, Result<Step, StepError>>;

/// Goes on after [`Step::Suspended`]: what was waited for has come, or its time is over. Written by
/// [`resume_fn`](crate::resume_fn).
pub type ResumeFn<S> =
    for<'a, 'b> fn(&'a S, &'a mut StepCx<'b>, &'a Signal) -> BoxFuture<'a, Result<Step, StepError>>;

/// The run is over; called in the transaction that ends it. Written by [`end_fn`](crate::end_fn).
pub type EndFn<S> = for<'a, 'b> fn(&'a S, &'a mut StepCx<'b>, RunEnd) -> BoxFuture<'a, Result<(), Failure>>;

/// Under this name and version a definition never changes; a changed one is a new version, and both are known to
/// the worker as long as runs of the old one are open. `S` is what its functions work with.
///
/// Each call has its effect through the transaction in [`StepCx`], which commits together with the step's record, or not
/// at all; so what is done in the database is done once. What is done elsewhere must bear repetition.
pub struct SagaDefinition<S: 'static> {
    pub name: &'static str,
    pub version: i32,
    pub steps: &'static [StepDefinition<S>],
    /// From the start of the run; then it is given up as if a step had failed.
    pub deadline: Duration,
    pub on_failure: OnFailure,
    /// What the audit rows of its steps say.
    pub audit_action: &'static str,
    pub ended: EndFn<S>,
}

pub struct StepDefinition<S: 'static> {
    pub name: &'static str,
    pub action: Action<S>,
    pub undo: Undo<S>,
    /// For one attempt, waiting included.
    pub timeout: Duration,
    pub retry: Retry,
}

pub enum Action<S: 'static> {
    /// Never suspends.
    AtOnce(StepFn<S>),
    /// May suspend, and goes on when it is woken or its time is over.
    Waits { run: StepFn<S>, resume: ResumeFn<S> },
}

/// What taking a step back means.
pub enum Undo<S: 'static> {
    /// There is nothing to take back: the step only looked, or what it did bears to stay.
    Nothing,
    /// Called for it, also when the step failed half-way.
    By(Action<S>),
}

/// A [`StepFn`] from the path of an `async fn`.
#[macro_export]
macro_rules! step_fn {
    ($function:path) => {
        |state, cx| ::std::boxed::Box::pin($function(state, cx))
    };
}

/// A [`ResumeFn`] from the path of an `async fn`.
#[macro_export]
macro_rules! resume_fn {
    ($function:path) => {
        |state, cx, signal| ::std::boxed::Box::pin($function(state, cx, signal))
    };
}

/// An [`EndFn`] from the path of an `async fn`.
#[macro_export]
macro_rules! end_fn {
    ($function:path) => {
        |state, cx, end| ::std::boxed::Box::pin($function(state, cx, end))
    };
}

impl<S: 'static> Action<S> {
    const fn waits(&self) -> bool {
        matches!(self, Self::Waits { .. })
    }

    const fn first(&self) -> StepFn<S> {
        match self {
            Self::AtOnce(run) | Self::Waits { run, .. } => *run,
        }
    }
}

impl<S: Send + Sync + 'static> SagaDefinition<S> {
    /// The definition with what its functions work with, for the engine.
    pub fn bind(&'static self, state: S) -> Arc<dyn Saga> {
        Arc::new(Bound { definition: self, spec: self.spec(), state })
    }
}

impl<S: 'static> SagaDefinition<S> {
    fn spec(&self) -> SagaSpec {
        let step = |step: &StepDefinition<S>| StepSpec {
            name: step.name,
            waits: step.action.waits(),
            has_undo: matches!(step.undo, Undo::By(_)),
            undo_waits: matches!(&step.undo, Undo::By(action) if action.waits()),
            timeout: step.timeout,
            retry: step.retry,
        };
        SagaSpec {
            name: self.name,
            version: self.version,
            steps: self.steps.iter().map(step).collect(),
            deadline: self.deadline,
            on_failure: self.on_failure,
            audit_action: self.audit_action,
        }
    }
}

struct Bound<S: 'static> {
    definition: &'static SagaDefinition<S>,
    spec: SagaSpec,
    state: S,
}

impl<S: Send + Sync + 'static> Saga for Bound<S> {
    fn spec(&self) -> &SagaSpec {
        &self.spec
    }

    fn call<'a>(
        &'a self,
        step: usize,
        call: &'a Call,
        cx: &'a mut StepCx<'_>,
    ) -> BoxFuture<'a, Result<Step, StepError>> {
        let Some(step) = self.definition.steps.get(step) else {
            return Box::pin(ready(Err(StepError::bug("the workflow has no such step"))));
        };
        match (call, &step.action, &step.undo) {
            (Call::Run, action, _) | (Call::Undo, _, Undo::By(action)) => (action.first())(&self.state, cx),
            (Call::Resume(signal), Action::Waits { resume, .. }, _)
            | (Call::ResumeUndo(signal), _, Undo::By(Action::Waits { resume, .. })) => {
                resume(&self.state, cx, signal)
            }
            (Call::Resume(_), Action::AtOnce(_), _)
            | (Call::ResumeUndo(_), _, Undo::By(Action::AtOnce(_)))
            | (Call::Undo | Call::ResumeUndo(_), _, Undo::Nothing) => {
                let text = format!("{} is called for what it does not have", step.name);
                Box::pin(ready(Err(StepError::bug(text))))
            }
        }
    }

    fn ended<'a>(&'a self, cx: &'a mut StepCx<'_>, end: RunEnd) -> BoxFuture<'a, Result<(), Failure>> {
        (self.definition.ended)(&self.state, cx, end)
    }
}
