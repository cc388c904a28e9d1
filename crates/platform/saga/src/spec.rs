//! What the engine must know of a saga to decide what comes next: data, made from its definition.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct SagaSpec {
    pub name: &'static str,
    pub version: i32,
    pub steps: Vec<StepSpec>,
    pub deadline: Duration,
    /// What becomes of a run that cannot go forward: a step failed for good, it was cancelled, its time is over.
    pub on_failure: OnFailure,
    pub audit_action: &'static str,
}

#[derive(Clone, Debug)]
pub struct StepSpec {
    pub name: &'static str,
    /// It may suspend.
    pub waits: bool,
    pub has_undo: bool,
    pub undo_waits: bool,
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
    pub fn step(&self, index: usize) -> Option<&StepSpec> {
        self.steps.get(index)
    }
}
