//! Release a whole machine: its account goes, it is installed anew when the product says so, and it is looked over
//! before anybody else gets it.

use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use fleet::api::Rekey;
use identity::api::Where;
use kernel::{
    Failure,
    policy::{IntegerKey, keys},
};
use node_proto::catalog::{DeprovisionUser, HealthProbe, Isolation, ProbeProfile};
use saga::{RunEnd, Saga, SagaSpec, Signal, Step, StepCx, StepError};
use serde::{Deserialize, Serialize};

use super::{
    phases, provision_machine::healthy, reimage::Reimaging, release, release_spec, specs::WAITS_FOR, tasks,
    words,
};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
};

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

pub struct ReleaseMachine(pub Capacity);

#[async_trait]
impl Saga for ReleaseMachine {
    fn spec(&self) -> &'static SagaSpec {
        release_spec(Shape::Baremetal)
    }

    async fn run(&self, step: &'static str, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
        match step {
            "begin" => release::begin(cx).await,
            "account" => {
                let allocation = release::releasing(cx).await?;
                tasks::ordered::<DeprovisionUser>(&self.0, cx, &allocation, &allocation.work_order).await
            }
            "reimage" => {
                let allocation = unheld(cx).await?;
                if let Some(wait) = reimage(&self.0, cx, &allocation, WAITS_FOR).await? {
                    return Ok(wait);
                }
                if allocation.isolation_model == Isolation::FullReimage.name() {
                    phases::done(cx.tx, &allocation, "reimage", "").await?;
                }
                Step::done()
            }
            "verify" => {
                let allocation = release::releasing(cx).await?;
                if let Some(wait) = new_key(cx, &allocation).await? {
                    return Ok(wait);
                }
                tasks::probe(&self.0, cx, &allocation, ProbeProfile::BetweenTenants).await
            }
            _ => {
                clean(cx)?;
                release::free(cx).await
            }
        }
    }

    async fn resume(
        &self,
        step: &'static str,
        cx: &mut StepCx<'_>,
        signal: &Signal,
    ) -> Result<Step, StepError> {
        if step == "verify" {
            let allocation = release::releasing(cx).await?;
            return verified(cx, &allocation, signal).await;
        }
        let answer = tasks::answer::<DeprovisionUser>(signal)?;
        let allocation = release::releasing(cx).await?;
        phases::told::<DeprovisionUser>(cx.tx, &allocation, step, &answer.phases, "").await?;
        Step::done()
    }

    async fn undo(&self, _: &'static str, _: &mut StepCx<'_>) -> Result<Step, StepError> {
        Step::done()
    }

    async fn resume_undo(&self, _: &'static str, _: &mut StepCx<'_>, _: &Signal) -> Result<Step, StepError> {
        Step::done()
    }

    async fn ended(&self, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
        release::over(&self.0, cx, end).await
    }
}

/// The allocation as it is, and not locked: the step waits for somebody outside.
pub async fn unheld(cx: &mut StepCx<'_>) -> Result<Allocation, StepError> {
    let id = cx.input::<super::LaunchInput>()?.allocation_id;
    let allocation = crate::store::allocations::get(cx.tx.conn(), id).await?;
    allocation.ok_or_else(|| StepError::fail(words::MOVED_ON))
}

/// Has the machine installed anew when its product says so; something to return until it is. Whoever installs cannot call
/// back, so it is asked again and again, as long as the policy allows.
pub async fn reimage(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    step: Duration,
) -> Result<Option<Step>, StepError> {
    if allocation.isolation_model != Isolation::FullReimage.name() {
        return Ok(None);
    }
    let key = format!("{}/{}", cx.run_id, cx.attempt);
    match reimage_look(capacity, allocation, &key).await? {
        Reimaging::Done => Ok(None),
        Reimaging::Failed(reason) => {
            tracing::warn!(allocation_id = %allocation.id, reason, "a machine could not be installed anew");
            Err(tasks::retry(words::NOT_INSTALLED, "the installer says so"))
        }
        Reimaging::UnderWay => {
            let limit = IntegerKey(&keys::CAPACITY_REIMAGE_SECONDS);
            let limit = capacity.policies.setting_at(limit, Where::default()).await?.get();
            let begun = cx.deadline - TimeDelta::from_std(step).unwrap_or_default();
            if cx.tx.db().ambient().now() >= begun + TimeDelta::seconds(limit) {
                return Err(tasks::retry(words::NOT_INSTALLED, "not in time"));
            }
            Ok(Some(Step::Again { after: LOOK_EVERY }))
        }
    }
}

async fn reimage_look(
    capacity: &Capacity,
    allocation: &Allocation,
    key: &str,
) -> Result<Reimaging, StepError> {
    let (reimager, node) = (&capacity.reimager, allocation.node_id);
    let asked = async {
        reimager.begin(node, key).await?;
        reimager.look(node, key).await
    };
    match tokio::time::timeout(CALL_LIMIT, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(tasks::retry(words::NOT_INSTALLED, "the installer did not answer")),
    }
}

/// The tenant is gone and may have had the node's key: the node makes a new one before it is sold again. Something to
/// return while it has not.
pub async fn new_key(cx: &mut StepCx<'_>, allocation: &Allocation) -> Result<Option<Step>, StepError> {
    match fleet::api::node_rekey(cx.tx, allocation.node_id, allocation.state_changed_at).await? {
        Rekey::Done => return Ok(None),
        Rekey::Asked => phases::done(cx.tx, allocation, "new_key", words::KEY_ASKED).await?,
        Rekey::Waiting => {}
    }
    // The last look of this attempt: operators read why.
    if cx.tx.db().ambient().now() >= cx.deadline {
        let why = fleet::api::node_key_blocker(cx.tx.conn(), allocation.node_id).await?;
        let why = why.map(|blocker| format!("{}: {}", blocker.code, blocker.message)).unwrap_or_default();
        return Err(tasks::retry(words::NO_NEW_KEY, &why));
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
    let clean = passed && healthy(&answer.output, allocation.gpus).is_ok();
    phases::told::<HealthProbe>(cx.tx, allocation, "verify", &answer.phases, "").await?;
    Step::done_with(&Verified { clean })
}

/// Fails unless looking it over went well.
pub fn clean(cx: &StepCx<'_>) -> Result<(), StepError> {
    match cx.output::<Verified>("verify")? {
        Some(Verified { clean: true }) => Ok(()),
        _ => Err(StepError::fail(words::SICK)),
    }
}
