//! The workflows as data: which steps, in which order, with how much patience.

use std::time::Duration;

use saga::{OnFailure, Retry, SagaSpec, StepSpec, Undo};

use crate::model::allocation::Shape;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A lost race, or a database that is away.
const PASSING: Retry = Retry::times(5, Duration::from_millis(100));
/// A node that is away, or stopped half-way.
const NODE: Retry = Retry::times(3, Duration::from_secs(1));

/// A step that only writes takes no longer than its transaction.
const fn writes(name: &'static str, undo: Undo) -> StepSpec {
    StepSpec { name, undo, timeout: Duration::from_secs(300), retry: PASSING }
}

/// How long a step waits for a node. Normally the task's own expiry ends it (`capacity.task_seconds`, at most a day).
pub(super) const WAITS_FOR: Duration = Duration::from_secs(25 * 60 * 60);

const fn waits(name: &'static str, undo: Undo) -> StepSpec {
    StepSpec { name, undo, timeout: WAITS_FOR, retry: NODE }
}

// What `begin` did to the slots is taken back with the end of the run, in one transaction with the claims.
static PROVISION_MACHINE: SagaSpec = SagaSpec {
    name: "provision_machine",
    version: 1,
    steps: &[
        writes("begin", Undo::Nothing),
        waits("account", Undo::Run),
        waits("keys", Undo::Nothing),
        waits("driver_check", Undo::Nothing),
        writes("activate", Undo::Nothing),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.provision",
};

static PROVISION_SLICE: SagaSpec = SagaSpec {
    name: "provision_slice",
    version: 1,
    steps: &[
        writes("begin", Undo::Nothing),
        waits("machine", Undo::Run),
        waits("keys", Undo::Nothing),
        writes("activate", Undo::Nothing),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.provision",
};

static RELEASE_MACHINE: SagaSpec = SagaSpec {
    name: "release_machine",
    version: 1,
    steps: &[
        writes("begin", Undo::Nothing),
        waits("account", Undo::Nothing),
        waits("reimage", Undo::Nothing),
        waits("verify", Undo::Nothing),
        writes("free", Undo::Nothing),
    ],
    deadline: DAY.saturating_mul(14),
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.release_run",
};

static RELEASE_SLICE: SagaSpec = SagaSpec {
    name: "release_slice",
    version: 1,
    steps: &[writes("begin", Undo::Nothing), waits("machine", Undo::Nothing), writes("free", Undo::Nothing)],
    deadline: DAY.saturating_mul(14),
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.release_run",
};

// One that fails leaves nothing to take back and nothing for a person to see to: it can be asked for again.
static RESTART: SagaSpec = SagaSpec {
    name: "restart",
    version: 1,
    steps: &[waits("restart", Undo::Nothing), waits("check", Undo::Nothing)],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.restart_run",
};

static ACCESS: SagaSpec = SagaSpec {
    name: "access",
    version: 1,
    steps: &[waits("install", Undo::Nothing)],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Undo,
    audit_action: "allocation.access_run",
};

// One that fails is begun again by the next release.
static ABANDON: SagaSpec = SagaSpec {
    name: "abandon_launch",
    version: 1,
    steps: &[writes("end", Undo::Nothing)],
    deadline: DAY,
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.abandon_run",
};

// Installing is a step of its own: a probe that is retried must not install the machine again.
static CLEANUP: SagaSpec = SagaSpec {
    name: "cleanup",
    version: 2,
    steps: &[
        writes("begin", Undo::Nothing),
        waits("clean", Undo::Nothing),
        waits("reimage", Undo::Nothing),
        waits("verify", Undo::Nothing),
        writes("free", Undo::Nothing),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Stuck,
    audit_action: "slot.cleanup_run",
};

// For runs that the release before began; `verify` installs the machine as well.
static CLEANUP_V1: SagaSpec = SagaSpec {
    name: "cleanup",
    version: 1,
    steps: &[
        writes("begin", Undo::Nothing),
        waits("clean", Undo::Nothing),
        waits("verify", Undo::Nothing),
        writes("free", Undo::Nothing),
    ],
    deadline: DAY.saturating_mul(7),
    on_failure: OnFailure::Stuck,
    audit_action: "slot.cleanup_run",
};

/// From a reserved allocation to an active one, or to `failed` with everything taken back. Started with a
/// [`super::LaunchInput`] and `allocation.subject()`, in the transaction that reserves.
pub fn provision_spec(shape: Shape) -> &'static SagaSpec {
    match shape {
        Shape::Baremetal => &PROVISION_MACHINE,
        Shape::GpuSlice | Shape::CpuVm => &PROVISION_SLICE,
    }
}

/// From `releasing` to `released`, or to `release_failed` with the slots fenced. Started with a
/// [`super::LaunchInput`] and `allocation.subject()`, in the transaction that sets `releasing`. It starts again from
/// wherever an earlier one ended.
pub fn release_spec(shape: Shape) -> &'static SagaSpec {
    match shape {
        Shape::Baremetal => &RELEASE_MACHINE,
        Shape::GpuSlice | Shape::CpuVm => &RELEASE_SLICE,
    }
}

/// Restarts the machine of an active allocation by its `restart_order`. [`super::LaunchInput`], `allocation.restart_subject()`.
pub fn restart_spec() -> &'static SagaSpec {
    &RESTART
}

/// Brings the key set of `access_order` to an active machine. [`super::LaunchInput`], `allocation.access_subject()`.
pub fn access_spec() -> &'static SagaSpec {
    &ACCESS
}

/// Ends a launch whose workflow got lost. [`super::LaunchInput`], `allocation.subject()`.
pub fn abandon_spec() -> &'static SagaSpec {
    &ABANDON
}

/// Cleans slots in `cleanup_blocked` of an allocation that is over. [`super::CleanupInput`]; the subject is the text
/// of the first slot's id.
pub fn cleanup_spec() -> &'static SagaSpec {
    &CLEANUP
}

/// What the release before started for the same purpose.
pub fn cleanup_spec_v1() -> &'static SagaSpec {
    &CLEANUP_V1
}
