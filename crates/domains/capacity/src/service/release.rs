//! The ways in which an allocation ends: one function, whoever asks. And its restart, which must not meet them.

use chrono::{DateTime, Utc};
use fleet::api::OrderedWork;
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, ProjectId},
    text::Reason,
};
use lifecycle::Named as _;
use node_proto::catalog::{Reboot, RebootInput, VmRestart, VmRestartInput};
use pg::{WriteTx, changed};
use saga::{SagaDefinition, StartError};

use super::launch::BEGIN_WITHIN;
use crate::{
    Capacity,
    model::{
        allocation::{Allocation, AllocationEvent, AllocationState, AllocationView, ReleaseCause, Shape},
        events::{AllocationReleasing, ForceReleaseRequested},
        history::HistoryKind,
    },
    store::{
        allocation_ends,
        allocation_events::{self, NewEvent},
        allocations::{Along, lock, lock_of_project, step},
    },
    workflow::{ABANDON, LaunchInput, RESTART, abandoned, release_saga},
};

const BUSY_RETRY_SECONDS: u64 = 5;

/// Members operate what they made; `any` says that the caller may operate everything in the project.
pub fn may_operate(tx: &WriteTx, any: bool, allocation: &Allocation) -> Result<(), Problem> {
    let actor = tx.permit().actor();
    let own = actor.id == Some(allocation.creator_id) && actor.kind == allocation.creator_kind.actor();
    if own || any {
        return Ok(());
    }
    Err(Problem::new(
        Code::OwnershipRequired,
        "Only the creator of the allocation or an admin of the project may do this.",
    ))
}

/// Ends an allocation that the caller has locked. What has begun to end goes on as it is, so asking twice, or
/// several asking at once, has one effect. The caller says in the audit what was touched.
pub async fn release_one(
    capacity: &Capacity,
    tx: &mut WriteTx,
    before: &Allocation,
    cause: ReleaseCause,
    reason: &str,
) -> Result<Allocation, Failure> {
    let by_person = matches!(cause, ReleaseCause::User | ReleaseCause::Admin);
    match before.state {
        AllocationState::Requested | AllocationState::Provisioning => {
            cancel_launch(tx, before, cause, reason).await
        }
        AllocationState::Active => release_start(capacity, tx, before, (cause, reason), None).await,
        AllocationState::ReleaseFailed if by_person => retry(tx, before, reason).await,
        AllocationState::Releasing if by_person => release_resume(tx, before, reason).await,
        AllocationState::Releasing
        | AllocationState::ReleaseFailed
        | AllocationState::Released
        | AllocationState::Failed => Ok(before.clone()),
    }
}

/// The launch is taken back by its own workflow; until that is done it stays in the state in which it is. The row is
/// locked, so the workflow has not made it active and will not: it looks whether it was cancelled when it ends.
async fn cancel_launch(
    tx: &mut WriteTx,
    before: &Allocation,
    cause: ReleaseCause,
    reason: &str,
) -> Result<Allocation, Failure> {
    // Somebody has done this already; what ends it now must not be cancelled.
    let asked = before.release_cause.is_some();
    let found = !asked && saga::cancel(tx, &before.subject(), reason).await?;
    if !found && !end_lost(tx, before).await? || asked {
        return Ok(before.clone());
    }
    let after = allocation_ends::cause_set(tx, before, cause).await?;
    history_append(tx, &after, HistoryKind::Operation, "cancel", reason).await?;
    Ok(after)
}

/// A launch whose workflow got lost gets one that ends it. False: it has a workflow, which is taking it back.
async fn end_lost(tx: &mut WriteTx, before: &Allocation) -> Result<bool, Failure> {
    let input = LaunchInput { allocation_id: before.id };
    match saga::start(tx, &ABANDON, &before.subject(), Some(before.org_id), &input).await {
        Ok(run) => {
            tracing::error!(allocation_id = %before.id, run_id = %run, "a launch had no workflow; started one that ends it");
            Ok(true)
        }
        Err(StartError::AlreadyRunning) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends an active allocation of which nothing is left on its node: it is paid for until `used_until`.
pub(crate) async fn end_gone(
    capacity: &Capacity,
    tx: &mut WriteTx,
    before: &Allocation,
    reason: &str,
    used_until: DateTime<Utc>,
) -> Result<Allocation, Failure> {
    release_start(capacity, tx, before, (ReleaseCause::Admin, reason), Some(used_until)).await
}

async fn release_start(
    capacity: &Capacity,
    tx: &mut WriteTx,
    before: &Allocation,
    (cause, reason): (ReleaseCause, &str),
    used_until: Option<DateTime<Utc>>,
) -> Result<Allocation, Failure> {
    let along = Along { reason, cause: Some(cause), failure_code: None };
    let mut after = step(tx, before, AllocationEvent::Release, along).await?;
    if let Some(until) = used_until {
        after = allocation_ends::meter_closed_set(tx, &after, until).await?;
    }
    let closed = after.meter_closed_at.unwrap_or(after.state_changed_at);
    capacity.money.meter_close(tx, after.id, closed).await?;
    tx.emit(&AllocationReleasing {
        allocation_id: after.id,
        project_id: after.project_id,
        cause,
        meter_opened_at: after.meter_opened_at,
        meter_closed_at: after.meter_closed_at,
        creator_id: after.creator_user(),
    })?;
    // Keys that are on their way need not arrive, and a restart that waits for the machine must not keep anybody
    // paying for it.
    saga::cancel(tx, &after.access_subject(), reason).await?;
    saga::cancel(tx, &after.restart_subject(), reason).await?;
    start(tx, &after, &after.subject(), release_saga(after.shape)).await?;
    Ok(after)
}

async fn retry(tx: &mut WriteTx, before: &Allocation, reason: &str) -> Result<Allocation, Failure> {
    let after =
        step(tx, before, AllocationEvent::RetryRelease, Along { reason, cause: None, failure_code: None })
            .await?;
    start(tx, &after, &after.subject(), release_saga(after.shape)).await?;
    Ok(after)
}

/// Leaves a running release unchanged; starts another workflow when it was lost.
async fn release_resume(tx: &mut WriteTx, before: &Allocation, reason: &str) -> Result<Allocation, Failure> {
    let input = LaunchInput { allocation_id: before.id };
    let spec = release_saga(before.shape);
    match saga::start(tx, spec, &before.subject(), Some(before.org_id), &input).await {
        Ok(run) => {
            tracing::error!(allocation_id = %before.id, run_id = %run, "a release had no workflow; started another");
            history_append(tx, before, HistoryKind::Operation, "retry", reason).await?;
        }
        Err(StartError::AlreadyRunning) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(before.clone())
}

async fn start(
    tx: &mut WriteTx,
    allocation: &Allocation,
    subject: &str,
    spec: &'static SagaDefinition<Capacity>,
) -> Result<(), Failure> {
    let input = LaunchInput { allocation_id: allocation.id };
    match saga::start(tx, spec, subject, Some(allocation.org_id), &input).await {
        Ok(_) => Ok(()),
        Err(StartError::AlreadyRunning) => {
            let text = "An operation on the allocation is in progress. Retry when it has ended.";
            Err(Problem::new(Code::Conflict, text).retry_after(BUSY_RETRY_SECONDS).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// A line of the history that is not a change of state.
pub(crate) async fn history_append(
    tx: &mut WriteTx,
    allocation: &Allocation,
    kind: HistoryKind,
    name: &str,
    reason: &str,
) -> Result<(), Failure> {
    allocation_events::append(tx, allocation.id, NewEvent { kind, name, reason, duration_ms: None }).await
}

fn record(tx: &mut WriteTx, before: &Allocation, after: &Allocation) -> Result<(), Failure> {
    let (before, after) = (AllocationView::from(before.clone()), AllocationView::from(after.clone()));
    changed(tx, "allocation", after.id, &before, &after)
}

/// What a request names, and what its caller may do.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub project: ProjectId,
    pub allocation: AllocationId,
    /// The caller may operate what others made.
    pub any: bool,
    pub if_match: Option<i64>,
}

/// The allocation that is asked for, held, after it is known that the caller may operate it.
pub(crate) async fn operated(tx: &mut WriteTx, asked: Asked) -> Result<Allocation, Failure> {
    let allocation = lock_of_project(tx.conn(), asked.project, asked.allocation).await?;
    may_operate(tx, asked.any, &allocation)?;
    allocation.check_version(asked.if_match)?;
    Ok(allocation)
}

pub async fn allocation_release(
    capacity: &Capacity,
    tx: &mut WriteTx,
    asked: Asked,
) -> Result<Allocation, Failure> {
    let before = operated(tx, asked).await?;
    let after = release_one(capacity, tx, &before, ReleaseCause::User, "released by its project").await?;
    record(tx, &before, &after)?;
    Ok(after)
}

/// Tries a failed release once more.
pub async fn allocation_retry(tx: &mut WriteTx, asked: Asked) -> Result<Allocation, Failure> {
    let before = operated(tx, asked).await?;
    let after = retry(tx, &before, "retried by its project").await?;
    record(tx, &before, &after)?;
    Ok(after)
}

/// Restarts the machine: it stays where it is, with its account and keys.
pub async fn allocation_restart(
    capacity: &Capacity,
    tx: &mut WriteTx,
    asked: Asked,
) -> Result<Allocation, Failure> {
    let before = operated(tx, asked).await?;
    if before.state != AllocationState::Active {
        let state = before.state.name();
        let text = format!("The allocation is {state}; only an active one can be restarted.");
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", state).into());
    }
    let work = match before.shape {
        Shape::Baremetal => {
            OrderedWork::from_input::<Reboot>(&RebootInput { reason: "requested by its user".to_owned() })?
        }
        Shape::GpuSlice | Shape::CpuVm => {
            OrderedWork::from_input::<VmRestart>(&VmRestartInput { owner: before.id.to_string() })?
        }
    };
    let work = work.until(tx.db().ambient().now() + BEGIN_WITHIN);
    let order = capacity.fleet.order_extend(tx, &before.subject(), &before.work_order, vec![work])?;
    let after = allocation_ends::restart_order_set(tx, &before, &order).await?;
    start(tx, &after, &after.restart_subject(), &RESTART).await?;
    history_append(tx, &after, HistoryKind::Operation, "restart", "").await?;
    record(tx, &before, &after)?;
    Ok(after)
}

/// For operators of the platform. The reason is shown to the project.
pub async fn force_release(
    capacity: &Capacity,
    tx: &mut WriteTx,
    id: AllocationId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Allocation, Failure> {
    let before = allocation_lock(tx, id).await?;
    before.check_version(if_match)?;
    let text = format!("released by the platform: {reason}");
    let launching = matches!(before.state, AllocationState::Requested | AllocationState::Provisioning);
    let after = if launching && !saga::is_live(tx.conn(), &before.subject()).await? {
        // Its workflow got lost, so nobody else takes it back.
        abandoned(capacity, tx, &before, ReleaseCause::Admin, &text).await?
    } else {
        release_one(capacity, tx, &before, ReleaseCause::Admin, &text).await?
    };
    if after.version != before.version {
        tx.emit(&ForceReleaseRequested { allocation_id: id, cause: ReleaseCause::Admin })?;
    }
    record(tx, &before, &after)?;
    Ok(after)
}

/// The organization's balance is used up. In a transaction of the platform, of which this is the whole purpose: its
/// audit row joins the organization's chain.
pub async fn release_for_depletion(
    capacity: &Capacity,
    tx: &mut WriteTx,
    id: AllocationId,
) -> Result<AllocationState, Failure> {
    let before = allocation_lock(tx, id).await?;
    release_for_money(capacity, tx, &before, ReleaseCause::Depletion, "the balance is used up").await
}

/// Money ends an allocation that the caller holds.
pub(crate) async fn release_for_money(
    capacity: &Capacity,
    tx: &mut WriteTx,
    before: &Allocation,
    cause: ReleaseCause,
    reason: &str,
) -> Result<AllocationState, Failure> {
    let after = release_one(capacity, tx, before, cause, reason).await?;
    if after.version != before.version {
        tx.emit(&ForceReleaseRequested { allocation_id: before.id, cause })?;
    }
    record(tx, before, &after)?;
    Ok(after.state)
}

/// Locks an allocation of any tenant; the audit row belongs to that tenant.
pub(crate) async fn allocation_lock(tx: &mut WriteTx, id: AllocationId) -> Result<Allocation, Failure> {
    let allocation = lock(tx.conn(), id).await?.ok_or_else(|| Problem::not_found("allocation"))?;
    tx.audit_in_org(allocation.org_id);
    Ok(allocation)
}
