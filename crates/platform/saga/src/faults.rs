//! Faults on purpose: how tests let a worker die, fail or lose its lease at a chosen point.

use kernel::ids::SagaRunId;

use crate::failure::StepError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Nothing of the call has happened.
    BeforeStep,
    /// The step's code has run; nothing is committed.
    InStep,
    /// Everything is committed; the worker has not gone on.
    AfterCommit,
}

/// A moment of a call.
#[derive(Clone, Copy, Debug)]
pub struct FaultPoint {
    pub at: At,
    pub run_id: SagaRunId,
    pub step: &'static str,
    pub undo: bool,
    /// The call goes on after a suspension.
    pub resumed: bool,
    pub attempt: u32,
}

#[derive(Debug)]
pub enum FaultAction {
    Continue,
    /// The worker stops as if it had been killed: what is open is dropped, nothing is cleaned up.
    Die,
    /// The call fails; has no meaning after the commit.
    Fail(StepError),
    /// Another worker takes the run over, as after a lease that ran out.
    LoseLease,
    /// Somebody cancels the run.
    Cancel,
}

pub trait Faults: Send + Sync + 'static {
    fn at(&self, point: FaultPoint) -> FaultAction;
}
