//! Who does a simulated node's work: the simulated drivers, at the pace of the plan, with its faults.
//!
//! A task goes through the phases of its kind; its effect happens in one of them. The agent may die in any
//! phase, before or after the effect, and a result may be another's.

use std::sync::{Arc, Mutex, PoisonError};

use kernel::Ambient;
use node_agent::{
    drivers::{Done, DriverError, Drivers, Steps, simulated::Machine},
    executor::{Executor, Finish, Job},
};
use node_proto::{
    Work,
    catalog::DrainState,
    contract::{FailureCode, Inventory},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    dice::{Dice, Purpose},
    node::Crash,
    plan::{Nature, Plan},
    report::Counters,
};

/// What of a simulated node outlives its agent: the machine, and what the agent keeps on it.
pub struct Body {
    pub machine: Machine,
    drivers: Drivers,
    plan: Arc<Plan>,
    nature: Nature,
    dice: Dice,
    counters: Arc<Counters>,
    /// The real time: latencies are measured by it, whatever the node's clock says.
    real: Ambient,
    kept: Mutex<Kept>,
}

struct Kept {
    drained: bool,
    agent_version: String,
}

impl Body {
    pub fn new(
        machine: Machine,
        plan: Arc<Plan>,
        nature: Nature,
        node: u64,
        counters: Arc<Counters>,
        real: Ambient,
    ) -> Self {
        let dice = Dice::new(plan.seed, node, Purpose::Tasks);
        let kept = Kept { drained: false, agent_version: env!("CARGO_PKG_VERSION").to_owned() };
        let drivers = machine.drivers();
        Self { machine, drivers, plan, nature, dice, counters, real, kept: Mutex::new(kept) }
    }

    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    pub fn agent_version(&self) -> String {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).agent_version.clone()
    }

    pub fn inventory(&self) -> Inventory {
        let users = self.drivers.host.users().unwrap_or_default();
        let drained = self.kept.lock().unwrap_or_else(PoisonError::into_inner).drained;
        Inventory { users, machines: Vec::new(), drained }
    }

    fn drain(&self, drained: bool) -> DrainState {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).drained = drained;
        DrainState { drained }
    }

    /// Does it. `Restart` when it ends with another boot or another agent.
    fn effect(&self, work: &Work) -> Effect {
        let (drivers, steps) = (&self.drivers, &Silent);
        let drained = self.kept.lock().unwrap_or_else(PoisonError::into_inner).drained;
        Effect::Done(match work {
            Work::TopologyDiscover(_) => output(drivers.devices.discover(steps)),
            Work::ProvisionUser(_) if drained => {
                Err(DriverError::new(FailureCode::Unavailable, "the node is drained"))
            }
            Work::ProvisionUser(input) => output(drivers.host.provision_user(input, steps)),
            Work::DeprovisionUser(input) => output(drivers.host.deprovision_user(input, steps)),
            Work::InstallAuthorizedKeys(input) => output(drivers.host.install_keys(input, steps)),
            Work::Drain(_) => output(Ok(self.drain(true))),
            Work::Undrain(_) => output(Ok(self.drain(false))),
            Work::HealthProbe(input) => output(drivers.diag.probe(input, steps)),
            Work::Collect(input) => output(drivers.diag.collect(input, steps)),
            Work::SelfUpdate(input) => {
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).agent_version =
                    input.version.clone();
                return Effect::Restart;
            }
            Work::Reboot(_) => {
                self.machine.restart();
                return Effect::Restart;
            }
        })
    }
}

enum Effect {
    Done(Done<Value>),
    Restart,
}

/// The executor tells the phases itself, at its own pace.
struct Silent;

impl Steps for Silent {
    fn begin(&self, _: &'static str) -> Done<()> {
        Ok(())
    }
}

fn output<T: Serialize>(done: Done<T>) -> Done<Value> {
    serde_json::to_value(done?).map_err(|error| DriverError::failed(error.to_string()))
}

/// The executor of one run of the agent: what it has begun ends with it.
pub struct SimExecutor {
    pub body: Arc<Body>,
    pub crash: Crash,
    /// Cancelled when the agent is no more.
    pub gone: CancellationToken,
}

impl Executor for SimExecutor {
    fn start(&self, job: Job, finish: Finish) {
        let (body, crash, gone) = (self.body.clone(), self.crash.clone(), self.gone.clone());
        // The session bounds how many there are.
        tokio::spawn(async move {
            tokio::select! {
                () = gone.cancelled() => {}
                () = perform(body, crash, job, finish) => {}
            }
        });
    }
}

async fn perform(body: Arc<Body>, crash: Crash, job: Job, finish: Finish) {
    let since = body.real.now().signed_duration_since(job.task.issued_at).to_std().unwrap_or_default();
    body.counters.begun(job.task.task_id, since);
    let phases = job.work.kind().phases();
    let takes_effect_in = body.dice.below(phases.len() as u64);
    let mut outcome = None;
    for (number, phase) in (0..).zip(phases) {
        if let Err(stopped) = job.steps.begin(phase) {
            outcome = Some(Err(stopped));
            break;
        }
        if number == takes_effect_in {
            match body.effect(&job.work) {
                Effect::Done(done) => outcome = Some(done),
                Effect::Restart => crash.now().await,
            }
        }
        let takes = body.dice.between(&body.plan.phase_ms.0);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if body.dice.falls(body.nature.faults.crash) {
            body.counters.fault_crash.add();
            crash.now().await;
        }
    }
    let mut outcome = outcome.unwrap_or_else(|| Err(DriverError::failed("nothing was done")));
    if body.dice.falls(body.nature.faults.wrong_result) {
        body.counters.fault_wrong_result.add();
        outcome = Ok(body.wrong());
    }
    finish.end(outcome);
}

impl Body {
    fn wrong(&self) -> Value {
        match self.dice.below(3) {
            0 => json!({ "drained": true }),
            1 => json!({ "surprise": [1, 2, 3] }),
            _ => Value::Null,
        }
    }
}
