//! How steps are declared: how long they wait and how often they are tried.

use std::time::Duration;

use saga::{Action, ResumeFn, Retry, StepDefinition, StepFn, Undo};

use crate::Capacity;

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a step waits for a node. Normally the task's own expiry ends it (`capacity.task_seconds`, at most a day).
pub const WAITS_FOR: Duration = Duration::from_secs(25 * 60 * 60);

/// A lost race, or a database that is away.
const PASSING: Retry = Retry::times(5, Duration::from_millis(100));
/// A node that is away, or stopped half-way.
const NODE: Retry = Retry::times(3, Duration::from_secs(1));

/// A step that only writes takes no longer than its transaction.
pub const fn writes(name: &'static str, run: StepFn<Capacity>) -> StepDefinition<Capacity> {
    let timeout = Duration::from_secs(300);
    StepDefinition { name, action: Action::AtOnce(run), undo: Undo::Nothing, timeout, retry: PASSING }
}

/// A step that asks somebody outside again and again.
pub const fn polls(name: &'static str, run: StepFn<Capacity>) -> StepDefinition<Capacity> {
    let action = Action::AtOnce(run);
    StepDefinition { name, action, undo: Undo::Nothing, timeout: WAITS_FOR, retry: NODE }
}

/// A step that waits for a node.
pub const fn waits(
    name: &'static str,
    run: StepFn<Capacity>,
    resume: ResumeFn<Capacity>,
) -> StepDefinition<Capacity> {
    let action = Action::Waits { run, resume };
    StepDefinition { name, action, undo: Undo::Nothing, timeout: WAITS_FOR, retry: NODE }
}

/// The same for one whose undo waits for the node as well.
pub const fn waits_with_undo(
    name: &'static str,
    (run, resume): (StepFn<Capacity>, ResumeFn<Capacity>),
    (undo, resume_undo): (StepFn<Capacity>, ResumeFn<Capacity>),
) -> StepDefinition<Capacity> {
    let action = Action::Waits { run, resume };
    let undo = Undo::By(Action::Waits { run: undo, resume: resume_undo });
    StepDefinition { name, action, undo, timeout: WAITS_FOR, retry: NODE }
}
