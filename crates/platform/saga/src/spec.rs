//! A saga as data: its steps, in order, with their patience.

use std::time::Duration;

/// Under this name and version a definition never changes; a changed one is a new version, and both are known to
/// the worker as long as runs of the old one are open.
#[derive(Debug)]
pub struct SagaSpec {
    pub name: &'static str,
    pub version: i32,
    pub steps: &'static [StepSpec],
    /// From the start of the run; then it is given up as if a step had failed.
    pub deadline: Duration,
    /// What becomes of a run that cannot go forward: a step failed for good, it was cancelled, its time is over.
    pub on_failure: OnFailure,
    /// What the audit rows of its steps say.
    pub audit_action: &'static str,
}

#[derive(Debug)]
pub struct StepSpec {
    pub name: &'static str,
    pub undo: Undo,
    /// For one attempt, waiting included.
    pub timeout: Duration,
    pub retry: Retry,
}

/// What becomes of a run that cannot go forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// What was begun is taken back, last step first.
    Undo,
    /// There is only forward: it stays as it is, and a person must look.
    Stuck,
}

/// What taking a step back means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo {
    /// [`crate::Saga::undo`] is called for it, also when the step failed half-way.
    Run,
    /// There is nothing to take back: the step only looked, or what it did bears to stay.
    Nothing,
}

/// How often a step is tried, and how long after a failed attempt the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub attempts: u32,
    /// Doubled with each attempt.
    pub first_delay: Duration,
}

impl Retry {
    pub const NEVER: Self = Self { attempts: 1, first_delay: Duration::ZERO };

    pub const fn times(attempts: u32, first_delay: Duration) -> Self {
        Self { attempts, first_delay }
    }
}

impl SagaSpec {
    pub fn step(&self, index: usize) -> Option<&'static StepSpec> {
        self.steps.get(index)
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.name == name)
    }
}
