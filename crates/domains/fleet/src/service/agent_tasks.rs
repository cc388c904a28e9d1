//! What operators have nodes do: leave and enter service, restart, update themselves, tell more.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Problem,
    ids::{NodeId, TaskId},
    text::Reason,
};
use lifecycle::Named as _;
use node_proto::{
    TaskKind,
    catalog::{
        Collect, CollectInput, CollectPart, Drain, DrainInput, Reboot, RebootInput, SelfUpdate,
        SelfUpdateInput, Undrain, UndrainInput,
    },
};
use pg::WriteTx;

use super::{
    changed, created, dispatch, found, nodes::transition, occupancy::check_unoccupied, tasks::TaskRequest,
};
use crate::{
    Fleet,
    model::{
        node::{Node, NodeEvent},
        task::TaskView,
        text::Sha256Hex,
    },
    store,
};

/// A node that is away may come back within this time and still do it.
const SOON: TimeDelta = TimeDelta::hours(1);
/// Marks that must reach the node whenever it is back.
const LASTING: TimeDelta = TimeDelta::days(7);

async fn queue<K: TaskKind>(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    input: K::Input,
    good_for: TimeDelta,
) -> Result<TaskId, Failure> {
    fleet.task_queue(tx, TaskRequest::<K> { node, input, attempt: 1, good_for, waiting: None }).await
}

/// The same for a node that must be able to take it, answered with the task.
async fn task_order<K: TaskKind>(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    input: K::Input,
) -> Result<TaskView, Failure> {
    found(store::nodes::lock(tx.conn(), node).await?, "node")?.check_takes_tasks()?;
    let task = queue::<K>(fleet, tx, node, input, SOON).await?;
    let view = found(store::task_views::get(tx.conn(), task).await?, "task")?;
    created(tx, "task", task, &view)?;
    Ok(view)
}

async fn before(tx: &mut WriteTx, node: NodeId, if_match: Option<i64>) -> Result<Node, Failure> {
    let node = found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    node.check_version(if_match)?;
    Ok(node)
}

/// Takes no new work; what runs there runs to its end.
pub async fn node_drain(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let earlier = before(tx, node, if_match).await?;
    let after = transition(tx, node, NodeEvent::Drain, reason.as_str()).await?;
    queue::<Drain>(fleet, tx, node, DrainInput { reason: reason.as_str().to_owned() }, LASTING).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

/// Back into service, unless the node never proved that it is fit for it.
pub async fn node_undrain(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let earlier = before(tx, node, if_match).await?;
    check_validated(tx, node).await?;
    let after = transition(tx, node, NodeEvent::Undrain, reason.as_str()).await?;
    queue::<Undrain>(fleet, tx, node, UndrainInput {}, LASTING).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

pub async fn node_quarantine(
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let earlier = before(tx, node, if_match).await?;
    let after = transition(tx, node, NodeEvent::Quarantine, reason.as_str()).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

/// Out of quarantine and into service, unless the node never proved that it is fit for it.
pub async fn node_release(
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let earlier = before(tx, node, if_match).await?;
    check_validated(tx, node).await?;
    let after = transition(tx, node, NodeEvent::Release, reason.as_str()).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

async fn check_validated(tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    match store::onboarding::get(tx.conn(), node).await? {
        Some(onboarding) if onboarding.is_done() => Ok(()),
        onboarding => {
            let state = onboarding.map_or("", |onboarding| onboarding.state.name());
            let text = "The node has not passed its validation and cannot be in service.";
            Err(Problem::new(Code::InvalidTransition, text)
                .detail("onboarding", state)
                .suggest("Approve its slots and validate it first.")
                .into())
        }
    }
}

/// Leaves service for good, once nobody's work is left there.
pub async fn node_retire(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let earlier = before(tx, node, if_match).await?;
    earlier.after(NodeEvent::Retire)?;
    check_unoccupied(fleet, tx, node).await?;
    let after = transition(tx, node, NodeEvent::Retire, reason.as_str()).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

/// Out of the fleet: its work is cancelled, and neither its certificates nor its tokens count from now on.
pub async fn node_remove(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let now = tx.db().ambient().now();
    let earlier = found(store::nodes::get(tx.conn(), node).await?, "node")?;
    earlier.check_version(if_match)?;
    earlier.after(NodeEvent::Remove)?;
    check_unoccupied(fleet, tx, node).await?;
    // Tasks before the node: that is the order in which results lock them.
    cancel_open(fleet, tx, node).await?;
    let after = transition(tx, node, NodeEvent::Remove, reason.as_str()).await?;
    // What was queued in between; from now on nothing more is.
    cancel_open(fleet, tx, node).await?;
    store::certificates::revoke(tx.conn(), node, None, "the node is removed", now).await?;
    store::tokens::revoke_open(tx.conn(), node, now).await?;
    changed(tx, "node", node, &earlier, &after)?;
    Ok(after)
}

async fn cancel_open(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    for task in store::agent_tasks::open(tx.conn(), node).await? {
        match dispatch::cancel(fleet, tx, task, None).await {
            Ok(_) => {}
            // It ended in this moment.
            Err(Failure::Problem(problem)) if problem.code == Code::InvalidTransition => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

pub async fn node_reboot(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    reason: &Reason,
) -> Result<TaskView, Failure> {
    task_order::<Reboot>(fleet, tx, node, RebootInput { reason: reason.as_str().to_owned() }).await
}

/// Has the agent replace itself by a program that this installation offers.
pub async fn node_agent_update(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    sha256: &Sha256Hex,
) -> Result<TaskView, Failure> {
    let (programs, digest) = (fleet.programs().clone(), sha256.as_str().to_owned());
    let program = tokio::task::spawn_blocking(move || programs.find(&digest)).await??;
    let Some(program) = program else {
        let problem = Problem::field("sha256", "there is no agent program with this digest");
        return Err(problem.suggest("List the available agent programs.").into());
    };
    let input =
        SelfUpdateInput { version: program.version, sha256: program.sha256, size_bytes: program.size_bytes };
    task_order::<SelfUpdate>(fleet, tx, node, input).await
}

/// What was collected is in the task's outcome.
pub async fn node_collect(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    mut parts: Vec<CollectPart>,
) -> Result<TaskView, Failure> {
    parts.sort_unstable();
    parts.dedup();
    if parts.is_empty() {
        return Err(Problem::field("parts", "must name at least one part").into());
    }
    task_order::<Collect>(fleet, tx, node, CollectInput { parts }).await
}
