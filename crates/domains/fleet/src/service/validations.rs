//! The gate before a node serves tenants: asked for here, judged in `onboarding`, its evidence kept.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{NodeId, TaskId},
};
use lifecycle::Named as _;
use node_proto::catalog::{HealthProbe, HealthProbeInput, HealthReport, ProbeProfile};
use pg::{ReadTx, WriteTx};
use serde_json::json;

use super::{
    completion::Waiter,
    found,
    tasks::{TaskRequest, Waiting},
};
use crate::{
    Fleet,
    model::{onboarding::Onboarding, task::TaskView, topology::Validation},
    store,
};

/// Includes the time it may wait for a node that is away.
const GOOD_FOR: TimeDelta = TimeDelta::minutes(30);

pub async fn node_validation_list(
    tx: &mut ReadTx,
    node: NodeId,
    page: &PageQuery,
) -> Result<Page<Validation>, Failure> {
    found(store::nodes::get(tx.conn(), node).await?, "node")?;
    let validations = store::validations::list(tx.conn(), node, page).await?;
    Ok(page.page(validations, |validation| validation.id.uuid()))
}

/// Has a node probed, whether it is new, failed before, or serves already.
pub async fn node_validate(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    profile: ProbeProfile,
) -> Result<TaskView, Failure> {
    let task = probe(fleet, tx, node, profile).await?;
    let view = found(store::task_views::get(tx.conn(), task.1).await?, "task")?;
    super::created(tx, "task", view.id, &view)?;
    Ok(view)
}

/// Queues the probe and notes that onboarding waits for it. Leaves the audit target alone.
pub(crate) async fn probe(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    profile: ProbeProfile,
) -> Result<(Onboarding, TaskId), Failure> {
    let now = tx.db().ambient().now();
    let found_node = found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    found_node.check_takes_tasks()?;
    let onboarding = found(store::onboarding::lock(tx.conn(), node).await?, "onboarding")?;
    let to = onboarding.validation()?.map(|event| onboarding.after(event)).transpose()?;
    if to.is_some() && store::slots::approved(tx.conn(), node).await? == 0 {
        let text = "No slot of the node is approved; there is nothing to validate.";
        return Err(Problem::new(Code::InvalidTransition, text)
            .detail("onboarding", onboarding.state.name())
            .suggest("Approve slots of the node; this probes it, too.")
            .into());
    }
    let expected = store::slots::expected_gpus(tx.conn(), node).await?;
    let request = TaskRequest::<HealthProbe> {
        node,
        input: HealthProbeInput { profile, expected_gpus: u32::try_from(expected).unwrap_or_default() },
        attempt: 1,
        good_for: GOOD_FOR,
        waiting: Some(Waiting { waiter: Waiter::Onboarding, key: node.to_string() }),
    };
    let task = fleet.task_queue(tx, request).await?;
    let noted = store::onboarding::update(tx.conn(), &onboarding, to, ("", Some(task)), now).await?;
    Ok((noted.or_problem("onboarding")?, task))
}

/// Has a node looked over that failed at something, without disturbing whoever else is there. One that takes no work
/// is left alone: it is not sold either.
pub(crate) async fn probe_doubted(fleet: &Fleet, tx: &mut WriteTx, node: NodeId) -> Result<(), Failure> {
    let takes =
        store::nodes::get(tx.conn(), node).await?.is_some_and(|node| node.check_takes_tasks().is_ok());
    if takes {
        probe(fleet, tx, node, ProbeProfile::Light).await?;
    }
    Ok(())
}

/// Keeps the evidence of a probe that somebody else asked for; answers whether it passed.
pub async fn node_validation_record(
    tx: &mut WriteTx,
    node: NodeId,
    task: TaskId,
    report: &HealthReport,
) -> Result<bool, Failure> {
    let passed = has_passed(report);
    keep_evidence(tx, (node, task), Some(report), passed, "").await?;
    Ok(passed)
}

/// Whoever says that all is well must say so of each part.
pub(crate) fn has_passed(report: &HealthReport) -> bool {
    report.passed && report.checks.iter().all(|check| check.passed)
}

pub(crate) async fn keep_evidence(
    tx: &mut WriteTx,
    (node, task): (NodeId, TaskId),
    report: Option<&HealthReport>,
    passed: bool,
    detail: &str,
) -> Result<(), Failure> {
    let ambient = tx.db().ambient().clone();
    let profile = match report.map(|report| report.profile) {
        Some(ProbeProfile::Onboarding) => "onboarding",
        Some(ProbeProfile::BetweenTenants) => "between_tenants",
        Some(ProbeProfile::Light) => "light",
        None => "unknown",
    };
    let evidence = match report {
        Some(report) => serde_json::to_value(report)?,
        None => json!({ "failure": detail }),
    };
    let validation = Validation {
        id: ambient.id(),
        node_id: node,
        task_id: task,
        profile: profile.to_owned(),
        passed,
        evidence,
        created_at: ambient.now(),
    };
    Ok(store::validations::insert(tx.conn(), &validation).await?)
}
