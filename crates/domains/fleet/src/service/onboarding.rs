//! From enrolled to active: looked over, approved by a person, proven by a probe.
//!
//! **Who writes.** The enrolment makes the node `enrolling` and says so (`nodes.enrolled`). A consumer that runs
//! where work can be signed queues the discovery ([`begin`]). Its result is handled by [`Onboarder`] in the
//! transaction that stores it: slots are proposed, `nodes.discovered` is said. A person approves slots (or the
//! consumer does, for simulated nodes where the installation wants that), which queues the probe. Its result makes
//! the slots available and the node active, or sends the node to quarantine.
//!
//! **On a crash** nothing is half done: each step is one transaction. A task that nobody answers expires, and
//! onboarding is `failed` with the reason, from where a person starts it again.

use async_trait::async_trait;
use chrono::TimeDelta;
use kernel::{
    Failure,
    ids::{NodeId, SlotId, TaskId},
};
use lifecycle::Lifecycle as _;
use node_proto::{
    catalog::{
        HealthProbe, HealthReport, ProbeProfile, TaskKind as _, Topology, TopologyDiscover,
        TopologyDiscoverInput,
    },
    contract::Ending,
};
use pg::WriteTx;
use serde_json::json;

use super::{
    completion::{CompletedTask, Completion, TaskEnding, Waiter},
    created, found,
    nodes::{cordon_once, transition},
    tasks::{TaskRequest, Waiting},
    validations::{has_passed, keep_evidence, probe},
};
use crate::{
    Fleet,
    model::{
        events::NodeDiscovered,
        node::{NodeEvent, NodeState, Serves},
        onboarding::{Onboarding, OnboardingEvent},
        reconcile::{Change, missing, plan},
        slot::{Approval, SlotEvent, SlotHealth, SlotLifecycle, SlotState, approvable},
        task::TaskView,
        text::tame,
    },
    store,
};

const DISCOVERY_GOOD_FOR: TimeDelta = TimeDelta::minutes(15);
const LONGEST_DETAIL: usize = 500;
/// More slots than this no machine has; a node that says so is not believed.
const MOST_SLOTS: usize = 256;

/// A node has just enrolled: it is looked over. Decides from the state, so a repeated event does nothing.
pub async fn begin(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    let Some(found_node) = store::nodes::lock(tx.conn(), node).await? else { return Ok(()) };
    let Some(onboarding) = store::onboarding::lock(tx.conn(), node).await? else { return Ok(()) };
    if found_node.check_takes_tasks().is_err() || onboarding.after(OnboardingEvent::Enrolled).is_err() {
        return Ok(());
    }
    let task = discover(fleet, tx, &onboarding).await?;
    created(tx, "task", task, &json!({ "node_id": node, "task_type": TopologyDiscover::TYPE.name() }))
}

/// A simulated node was looked over: what is ready is approved, where the installation wants that.
pub async fn approve_simulated(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    if !fleet.settings().auto_approve_simulated {
        return Ok(());
    }
    let Some(found_node) = store::nodes::lock(tx.conn(), node).await? else { return Ok(()) };
    let Some(onboarding) = store::onboarding::lock(tx.conn(), node).await? else { return Ok(()) };
    let waits = onboarding.after(OnboardingEvent::Approve).is_ok();
    if !found_node.simulated || !waits || found_node.check_takes_tasks().is_err() {
        return Ok(());
    }
    let slots = store::slots::lock_of_node(tx.conn(), node).await?;
    if approvable(&slots, &Approval::AllReady).is_err() {
        return Ok(());
    }
    super::slots::approve(fleet, tx, node, &Approval::AllReady, None).await.map(drop)
}

/// Looks a node over again.
pub async fn node_discover(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<TaskView, Failure> {
    found(store::nodes::lock(tx.conn(), node).await?, "node")?.check_takes_tasks()?;
    let onboarding = found(store::onboarding::lock(tx.conn(), node).await?, "onboarding")?;
    let task = discover(fleet, tx, &onboarding).await?;
    let view = found(store::task_views::get(tx.conn(), task).await?, "task")?;
    created(tx, "task", task, &view)?;
    Ok(view)
}

async fn discover(fleet: &Fleet, tx: &mut WriteTx, onboarding: &Onboarding) -> Result<TaskId, Failure> {
    let now = tx.db().ambient().now();
    let node = onboarding.node_id;
    let to = onboarding.discovery()?.map(|event| onboarding.after(event)).transpose()?;
    let request = TaskRequest::<TopologyDiscover> {
        node,
        input: TopologyDiscoverInput {},
        attempt: 1,
        good_for: DISCOVERY_GOOD_FOR,
        waiting: Some(Waiting { waiter: Waiter::Onboarding, key: node.to_string() }),
    };
    let task = fleet.task_queue(tx, request).await?;
    store::onboarding::update(tx.conn(), onboarding, to, ("", Some(task)), now)
        .await?
        .or_problem("onboarding")?;
    Ok(task)
}

/// Takes the results of discoveries and probes. It never queues work: whoever stores results cannot sign.
pub struct Onboarder;

#[async_trait]
impl Completion for Onboarder {
    fn waiter(&self) -> Waiter {
        Waiter::Onboarding
    }

    async fn completed(&self, tx: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure> {
        // The node's lock first, as everywhere.
        let Some(node) = store::nodes::lock(tx.conn(), task.node_id).await? else { return Ok(()) };
        let Some(onboarding) = store::onboarding::lock(tx.conn(), task.node_id).await? else { return Ok(()) };
        if !node.state.is_enrolled() {
            return Ok(());
        }
        if task.task_type == TopologyDiscover::TYPE.name() {
            discovered(tx, node.serves, &onboarding, task).await
        } else if task.task_type == HealthProbe::TYPE.name() {
            probed(tx, &onboarding, node.state, task).await
        } else {
            Ok(())
        }
    }
}

/// What a task that gave no output ended with, for people.
fn why(ending: &TaskEnding) -> String {
    let text = match ending {
        TaskEnding::Reported(Ending::Failed { failure }) => failure.message.clone(),
        TaskEnding::Reported(Ending::Refused { reason }) => format!("the node refused the task: {reason}"),
        TaskEnding::Reported(Ending::Succeeded { .. }) => "the node's answer could not be read".to_owned(),
        TaskEnding::Expired => "the node did not answer in time".to_owned(),
        TaskEnding::Cancelled => "the task was cancelled".to_owned(),
        TaskEnding::Rejected => "the task row differs from its signature and was not sent".to_owned(),
    };
    tame(&text, LONGEST_DETAIL)
}

/// A step of onboarding that `task` is the end of; nothing when something else is waited for by now.
async fn step(
    tx: &mut WriteTx,
    onboarding: &Onboarding,
    task: TaskId,
    event: OnboardingEvent,
    detail: &str,
) -> Result<bool, Failure> {
    let now = tx.db().ambient().now();
    let Some(to) = onboarding.after(event).ok().filter(|_| onboarding.task_id == Some(task)) else {
        return Ok(false);
    };
    let swap = store::onboarding::update(tx.conn(), onboarding, Some(to), (detail, None), now).await?;
    swap.or_problem("onboarding")?;
    Ok(true)
}

async fn discovered(
    tx: &mut WriteTx,
    serves: Serves,
    onboarding: &Onboarding,
    task: &CompletedTask,
) -> Result<(), Failure> {
    let output = match &task.ending {
        TaskEnding::Reported(Ending::Succeeded { output }) => Some(output),
        _ => None,
    };
    let topology = output.and_then(|output| serde_json::from_value::<Topology>(output.clone()).ok());
    let Some((output, mut topology)) = output.zip(topology) else {
        step(tx, onboarding, task.id, OnboardingEvent::DiscoveryFailed, &why(&task.ending)).await?;
        return Ok(());
    };
    if topology.candidates.len() > MOST_SLOTS {
        let detail = "the node reported too many slots";
        step(tx, onboarding, task.id, OnboardingEvent::DiscoveryFailed, detail).await?;
        return Ok(());
    }
    let now = tx.db().ambient().now();
    store::topologies::put(tx.conn(), task.node_id, task.id, output, now).await?;
    keep_blockers(serves, &mut topology);
    reconcile(tx, task.node_id, &topology).await?;
    step(tx, onboarding, task.id, OnboardingEvent::Discovered, "").await?;
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let blocked = topology.candidates.iter().filter(|slot| !slot.blockers.is_empty()).count();
    tx.emit(&NodeDiscovered {
        node_id: task.node_id,
        slots: count(topology.candidates.len()),
        blocked: count(blocked),
    })?;
    Ok(())
}

/// Only what stands in the way of what the node serves.
fn keep_blockers(serves: Serves, topology: &mut Topology) {
    for candidate in &mut topology.candidates {
        candidate.blockers.retain(|blocker| serves.is_blocked_by(&blocker.code));
    }
}

/// What the last discovery found, judged anew for what the node is to serve. The node must be locked.
pub(crate) async fn judge_again(tx: &mut WriteTx, node: NodeId, serves: Serves) -> Result<(), Failure> {
    let Some(found) = store::topologies::get(tx.conn(), node).await? else { return Ok(()) };
    let mut topology: Topology = serde_json::from_value(found.topology)?;
    keep_blockers(serves, &mut topology);
    reconcile(tx, node, &topology).await
}

async fn reconcile(tx: &mut WriteTx, node: NodeId, topology: &Topology) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let slots = store::slots::lock_of_node(tx.conn(), node).await?;
    let plan = plan(&slots, &topology.candidates);
    for (n, change) in plan.known {
        let slot = &slots[n];
        let near = |vf: Option<&str>| fabric_numa(topology, vf);
        match change {
            Change::Same { blockers } => {
                let was_missing = slot.blockers.iter().any(|blocker| blocker.code == "missing");
                let health = was_missing.then_some(SlotHealth::Unknown);
                if was_missing || !same(&slot.blockers, &blockers) {
                    store::slots::set_blockers(tx.conn(), slot, &blockers, health, now).await?;
                }
                let numa = near(slot.fabric_vf.as_deref());
                if numa != slot.fabric_numa && !slot.is_occupied() {
                    store::slots::set_fabric_numa(tx.conn(), slot, numa, now).await?;
                }
            }
            Change::Other { candidate, withdraw } => {
                let to = if withdraw { Some(slot.after(SlotEvent::Withdraw)?) } else { None };
                let numa = near(candidate.fabric_vf.as_deref());
                store::slots::propose(tx.conn(), slot, to, &candidate, numa, now).await?;
            }
            Change::Missing => {
                store::slots::set_blockers(tx.conn(), slot, &[missing(slot)], Some(SlotHealth::Failed), now)
                    .await?;
            }
        }
    }
    // Ids of one moment are in no order; lists go by id and should go by place.
    let mut ids: Vec<SlotId> = plan.new.iter().map(|_| tx.db().ambient().id()).collect();
    ids.sort_unstable();
    for ((place, candidate), id) in plan.new.into_iter().zip(ids) {
        let numa = fabric_numa(topology, candidate.fabric_vf.as_deref());
        store::slots::insert(tx.conn(), id, node, (place, &candidate), numa, now).await?;
    }
    Ok(())
}

/// The NUMA node of the interface that has this function.
fn fabric_numa(topology: &Topology, vf: Option<&str>) -> Option<i32> {
    let nic = topology.nics.iter().find(|nic| nic.vfs.iter().any(|f| Some(f.pci_address.as_str()) == vf));
    nic.and_then(|nic| nic.numa_node).and_then(|numa| i32::try_from(numa).ok())
}

fn same(known: &[crate::model::node::ReadinessBlocker], found: &[node_proto::catalog::Blocker]) -> bool {
    known.len() == found.len()
        && known
            .iter()
            .zip(found)
            .all(|(a, b)| a.code == b.code && a.subject == b.subject && a.message == b.message)
}

async fn probed(
    tx: &mut WriteTx,
    onboarding: &Onboarding,
    state: NodeState,
    task: &CompletedTask,
) -> Result<(), Failure> {
    let report = match &task.ending {
        TaskEnding::Reported(Ending::Succeeded { output }) => {
            serde_json::from_value::<HealthReport>(output.clone()).ok()
        }
        _ => None,
    };
    let passed = report.as_ref().is_some_and(has_passed);
    let detail = match &report {
        Some(report) => {
            let failed: Vec<&str> =
                report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
            tame(&failed.join(", "), LONGEST_DETAIL)
        }
        None => why(&task.ending),
    };
    keep_evidence(tx, (task.node_id, task.id), report.as_ref(), passed, &detail).await?;
    let (node, now) = (task.node_id, tx.db().ambient().now());
    if passed {
        // All slots first: what is counted of them is locked by the first that changes.
        store::slots::lock_of_node(tx.conn(), node).await?;
        // From approved to available is the lifecycle's own step.
        if let Some(to) = SlotLifecycle::next(SlotState::Approved, SlotEvent::Validate) {
            store::slots::validated(tx.conn(), node, (SlotState::Approved, to), now).await?;
        }
        let done = step(tx, onboarding, task.id, OnboardingEvent::Passed, "").await?;
        if done && state == NodeState::Enrolling {
            transition(tx, node, NodeEvent::Activate, "the validation probe passed").await?;
        }
        return Ok(());
    }
    let failed = step(tx, onboarding, task.id, OnboardingEvent::ValidationFailed, &detail).await?;
    // Only what the node itself told is evidence about it.
    let told = matches!(task.ending, TaskEnding::Reported(_));
    let reason = format!("the validation probe failed: {detail}");
    if failed && told && state == NodeState::Enrolling {
        transition(tx, node, NodeEvent::Quarantine, &reason).await?;
    } else if told && onboarding.is_done() {
        cordon_once(tx, node, &reason).await?;
    }
    Ok(())
}

/// The probe that follows an approval.
pub(crate) async fn validate_after_approval(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
) -> Result<TaskId, Failure> {
    let done = store::onboarding::get(tx.conn(), node).await?.is_some_and(|onboarding| onboarding.is_done());
    // A node that serves already must not be disturbed.
    let profile = if done { ProbeProfile::Light } else { ProbeProfile::Onboarding };
    Ok(probe(fleet, tx, node, profile).await?.1)
}
