//! Release a whole machine: its account goes, it is installed anew when the product says so, and it is looked over
//! before anybody else gets it.

use std::time::Duration;

use chrono::TimeDelta;
use fleet::api::Rekey;
use identity::api::Where;
use kernel::policy::{IsolationModel, keys};
use node_proto::catalog::{DeprovisionUser, HealthProbe, ProbeProfile};
use saga::{OnFailure, SagaDefinition, Signal, Step, StepCx, StepError, end_fn, resume_fn, step_fn};
use serde::{Deserialize, Serialize};

use super::{
    failure::WorkflowFailure,
    phases,
    provision_machine::check_passed,
    reimage::Reimaging,
    release_common,
    steps::{DAY, WAITS_FOR, polls, waits, writes},
    tasks,
};
use crate::{Capacity, model::allocation::Allocation};

/// Of the phase in which the node makes a new key.
const KEY_ASKED: &str = "the machine makes a new key for itself before anybody else gets it";
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a node that is to make a new key is looked at.
const KEY_EVERY: Duration = Duration::from_secs(1);
/// Of one call to whoever installs.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// How looking the machine over went. The evidence of a failed one is kept, so the step itself is done.
#[derive(Serialize, Deserialize)]
pub struct Verified {
    pub clean: bool,
}

pub static RELEASE_MACHINE: SagaDefinition<Capacity> = SagaDefinition {
    name: "release_machine",
    version: 1,
    steps: &[
        writes("begin", step_fn!(release_common::begin)),
        waits("account", step_fn!(account_remove), resume_fn!(account_removed)),
        polls("reimage", step_fn!(reimage_step)),
        waits("verify", step_fn!(verify), resume_fn!(verify_reported)),
        writes("free", step_fn!(free)),
    ],
    deadline: DAY.saturating_mul(14),
    on_failure: OnFailure::Stuck,
    audit_action: "allocation.release_run",
    ended: end_fn!(release_common::ended),
};

async fn account_remove(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = release_common::releasing(cx).await?;
    tasks::ordered::<DeprovisionUser>(capacity, cx, &allocation, &allocation.work_order).await
}

async fn account_removed(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let answer = tasks::answer::<DeprovisionUser>(signal)?;
    let allocation = release_common::releasing(cx).await?;
    phases::reported::<DeprovisionUser>(cx.tx, &allocation, "account", &answer.phases, "").await?;
    Step::done()
}

async fn reimage_step(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = unlocked(cx).await?;
    if let Some(wait) = reimage(capacity, cx, &allocation).await? {
        return Ok(wait);
    }
    if allocation.isolation_model == IsolationModel::FullReimage {
        phases::done(cx.tx, &allocation, "reimage", "").await?;
    }
    Step::done()
}

async fn verify(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let allocation = release_common::releasing(cx).await?;
    if let Some(wait) = new_key(cx, &allocation).await? {
        return Ok(wait);
    }
    tasks::probe(capacity, cx, &allocation, ProbeProfile::BetweenTenants).await
}

async fn verify_reported(_: &Capacity, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let allocation = release_common::releasing(cx).await?;
    verified(cx, &allocation, signal).await
}

async fn free(capacity: &Capacity, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    require_verified(cx)?;
    release_common::free(capacity, cx).await
}

/// The allocation as it is, and not locked: the step waits for somebody outside.
pub async fn unlocked(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let id = cx.input::<super::LaunchInput>()?.allocation_id;
    let allocation = crate::store::allocations::get(cx.tx.conn(), id).await?;
    allocation.ok_or_else(|| tasks::fail(WorkflowFailure::StateChanged, ""))
}

/// Has the machine installed anew when its product says so; something to return until it is. Whoever installs cannot call
/// back, so it is asked again and again, as long as the policy allows.
pub async fn reimage(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
) -> Result<Option<Step>, StepError> {
    if allocation.isolation_model != IsolationModel::FullReimage {
        return Ok(None);
    }
    let key = format!("{}/{}", cx.run_id, cx.attempt);
    match reimaging_step(capacity, allocation, &key).await? {
        Reimaging::Done => Ok(None),
        Reimaging::Failed(reason) => {
            tracing::warn!(allocation_id = %allocation.id, reason, "reinstalling a machine failed");
            Err(tasks::retry(WorkflowFailure::NotReimaged, "the installer says so"))
        }
        Reimaging::UnderWay => {
            let limit = keys::CAPACITY_REIMAGE_SECONDS;
            let limit = capacity.policies.setting_at(limit, Where::default()).await?.get();
            let begun = cx.deadline - TimeDelta::from_std(WAITS_FOR).unwrap_or_default();
            if cx.tx.db().ambient().now() >= begun + TimeDelta::seconds(limit) {
                return Err(tasks::retry(WorkflowFailure::NotReimaged, "not in time"));
            }
            Ok(Some(Step::Again { after: LOOK_EVERY }))
        }
    }
}

async fn reimaging_step(
    capacity: &Capacity,
    allocation: &Allocation,
    key: &str,
) -> Result<Reimaging, StepError> {
    let (reimager, node) = (&capacity.reimager, allocation.node_id);
    let asked = async {
        reimager.begin(node, key).await?;
        reimager.reimage_poll(node, key).await
    };
    match tokio::time::timeout(CALL_LIMIT, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(tasks::retry(WorkflowFailure::NotReimaged, "the installer did not answer")),
    }
}

/// The tenant is gone and may have had the node's key: the node makes a new one before it is sold again. Something to
/// return while it has not.
pub async fn new_key(cx: &mut StepCx<'_>, allocation: &Allocation) -> Result<Option<Step>, StepError> {
    match fleet::api::node_rekey(cx.tx, allocation.node_id, allocation.state_changed_at).await? {
        Rekey::Done => return Ok(None),
        Rekey::Asked => phases::done(cx.tx, allocation, "new_key", KEY_ASKED).await?,
        Rekey::Waiting => {}
    }
    // The last look of this attempt: operators read why.
    if cx.tx.db().ambient().now() >= cx.deadline {
        let why = fleet::api::node_key_blocker(cx.tx.conn(), allocation.node_id).await?;
        let why = why.map(|blocker| format!("{}: {}", blocker.code, blocker.message)).unwrap_or_default();
        return Err(tasks::retry(WorkflowFailure::NoNewKey, &why));
    }
    Ok(Some(Step::Again { after: KEY_EVERY }))
}

/// Keeps the evidence, whatever it says.
pub async fn verified(
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    signal: &Signal,
) -> Result<Step, StepError> {
    let answer = tasks::answer::<HealthProbe>(signal)?;
    let passed =
        fleet::api::node_validation_record(cx.tx, allocation.node_id, answer.task, &answer.output).await?;
    let clean = passed && check_passed(&answer.output, allocation.gpus).is_ok();
    phases::reported::<HealthProbe>(cx.tx, allocation, "verify", &answer.phases, "").await?;
    Step::done_with(&Verified { clean })
}

/// Fails unless looking it over went well.
pub fn require_verified(cx: &StepCx<'_>) -> Result<(), StepError> {
    match cx.output::<Verified>("verify")? {
        Some(Verified { clean: true }) => Ok(()),
        _ => Err(tasks::fail(WorkflowFailure::CheckFailed, "")),
    }
}
