//! Durable steps with undo.
//!
//! **How it works.** A saga is a [`SagaDefinition`]: its steps in order, each with its functions and its undo. [`start`] writes a run
//! in the transaction of whoever decided it. Workers lease runs that are due (SKIP LOCKED, with a fence), ask the
//! pure function [`decide`] what comes next, and do it: a step's effect, its record and the run's progress are one
//! transaction. A step that waits for a node suspends; [`wake`] lets it go on in the transaction that brings the
//! answer, so nobody polls. Timers and missed wake-ups are found by the time in the row.
//!
//! **What it promises.** Every run reaches an end: succeeded, undone, or stuck with a reason that a person can act
//! on. Retries, waits and undos are bounded. A worker that dies loses its lease, and another goes on from the last
//! commit; one that comes back late is refused by the fence. One live run per subject: what starts another waits or
//! is told.
//!
//! **Another engine** (Temporal) runs the same definitions: [`decide`] is all there is to know, and the conformance
//! tests of this crate say what it must keep.

pub mod conformance;
pub mod decide;
pub mod definition;
pub mod failure;
pub mod faults;
pub mod http;
pub mod runs;
pub mod spec;
pub mod step;

mod call;
mod drive;
mod engine;
mod measure;
mod request;
mod store;
mod transaction;

pub use call::Call;
pub use decide::{RunEnd, decide};
pub use definition::{Action, EndFn, ResumeFn, SagaDefinition, StepDefinition, StepFn, Undo};
pub use engine::Engine;
pub use failure::{DomainFailure, FailureCode, RunFailure, StepError};
pub use http::endpoints;
pub use request::{
    StartError, StepState, TimelineEntry, cancel, is_live, runs_before, start, timeline, wake,
};
pub use runs::{RunLifecycle, RunState};
pub use spec::{OnFailure, Retry, SagaSpec, StepSpec};
pub use step::{Saga, Signal, Step, StepCx};
pub use store::tidy;

/// Where it is said that a run is due.
pub(crate) const CHANNEL: &str = "gpuaas_sagas";

/// What people read of an error or a reason: bounded, and without what Postgres text cannot hold.
pub(crate) fn readable(text: &str) -> String {
    const MAX_CHARS: usize = 1000;
    text.chars().filter(|c| *c != '\0').take(MAX_CHARS).collect()
}
