//! Who does a simulated node's work: the simulated drivers, at the pace of the plan, with its faults.
//!
//! A task goes through the phases of its kind; its effect happens in one of them. The agent may die in any
//! phase, before or after the effect, and a result may be another's. Where the script has something go wrong at a
//! phase, the effect has come exactly so far.

use std::sync::{Arc, Mutex, PoisonError};

use kernel::Ambient;
use node_agent::{
    drivers::{Done, DriverError, Drivers, Steps, simulated::Machine},
    executor::{Executor, Finish, Job},
};
use node_proto::{
    Work,
    catalog::DrainState,
    contract::{Finding, Inventory},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    dice::{Dice, Purpose},
    node::Crash,
    plan::{Nature, Plan},
    report::Counters,
    script::{Does, NodeScript, Rule},
};

/// What of a simulated node outlives its agent: the machine, and what the agent keeps on it.
pub struct Body {
    pub machine: Machine,
    drivers: Drivers,
    plan: Arc<Plan>,
    nature: Nature,
    dice: Dice,
    counters: Arc<Counters>,
    script: Arc<NodeScript>,
    /// The real time: latencies are measured by it, whatever the node's clock says.
    real: Ambient,
    agent_version: Mutex<String>,
}

impl Body {
    pub fn new(
        machine: Machine,
        plan: Arc<Plan>,
        nature: Nature,
        node: u64,
        counters: Arc<Counters>,
        script: Arc<NodeScript>,
        real: Ambient,
    ) -> Self {
        let dice = Dice::new(plan.seed, node, Purpose::Tasks);
        let agent_version = Mutex::new(env!("CARGO_PKG_VERSION").to_owned());
        let drivers = machine.drivers();
        Self { machine, drivers, plan, nature, dice, counters, script, real, agent_version }
    }

    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// What is wrong with the machine, with what the script says.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.drivers.findings();
        findings.extend(self.script.faults().into_iter().map(|code| Finding {
            message: "as the script says".to_owned(),
            subject: "node".to_owned(),
            observed_at: self.drivers.ambient.now(),
            evidence: json!({ "code": code }),
            code,
        }));
        findings
    }

    pub fn agent_version(&self) -> String {
        self.agent_version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn inventory(&self) -> Inventory {
        // Simulated drivers always know.
        let users = self.drivers.host.users().unwrap_or_default();
        let machines = self.drivers.slices.machines().unwrap_or_default();
        Inventory { users, machines, drained: self.machine.drained(), terminal_sessions: None }
    }

    fn drain(&self, drained: bool) -> DrainState {
        self.machine.drain(drained);
        DrainState { drained }
    }

    /// Does it, as far as `steps` lets it. `Restart` when it ends with another boot or another agent.
    fn effect(&self, work: &Work, steps: &dyn Steps) -> Effect {
        let drivers = &self.drivers;
        let drained = self.machine.drained();
        Effect::Done(match work {
            Work::TopologyDiscover(_) => output(drivers.devices.discover(steps)),
            Work::VmProvision(_) | Work::ProvisionUser(_) if drained => Err(DriverError::drained()),
            Work::VmProvision(input) => output(drivers.slices.provision(input, steps)),
            Work::VmRelease(input) => output(drivers.slices.release(input, steps)),
            Work::VmRestart(input) => output(drivers.slices.restart(input, steps)),
            Work::VmAuthorizedKeys(input) => output(drivers.slices.set_keys(input, steps)),
            Work::VmRetainAuthorizedKeys(input) => output(drivers.slices.retain_keys(input, steps)),
            Work::ProvisionUser(input) => output(drivers.host.provision_user(input, steps)),
            Work::DeprovisionUser(input) => output(drivers.host.deprovision_user(input, steps)),
            Work::InstallAuthorizedKeys(input) => output(drivers.host.install_keys(input, steps)),
            Work::RetainAuthorizedKeys(input) => output(drivers.host.retain_keys(input, steps)),
            Work::Drain(_) => output(steps.begin("mark").map(|()| self.drain(true))),
            Work::Undrain(_) => output(steps.begin("mark").map(|()| self.drain(false))),
            Work::HealthProbe(input) => output(drivers.diag.probe(input, steps)),
            Work::Collect(input) => output(drivers.diag.collect(input, steps)),
            Work::SelfUpdate(_) | Work::Reboot(_) => {
                let phases = work.kind().phases();
                if let Err(stopped) = phases.iter().try_for_each(|phase| steps.begin(phase)) {
                    return Effect::Done(Err(stopped));
                }
                if let Work::SelfUpdate(input) = work {
                    let mut version = self.agent_version.lock().unwrap_or_else(PoisonError::into_inner);
                    version.clone_from(&input.version);
                } else {
                    self.machine.restart();
                }
                return Effect::Restart;
            }
        })
    }
}

enum Effect {
    Done(Done<Value>),
    Restart,
}

/// The executor tells the phases itself, at its own pace; the effect goes as far as the phase before this one.
struct Until<'a>(Option<&'a str>);

impl Steps for Until<'_> {
    fn begin(&self, phase: &'static str) -> Done<()> {
        if self.0 == Some(phase) { Err(DriverError::failed("as far as the script says")) } else { Ok(()) }
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
    let kind = job.work.kind();
    let phases = kind.phases();
    let scripted = body.script.begins(kind);
    let happens_at = scripted.as_ref().and_then(|rule| rule.phase(kind));
    let happens = |number: Option<usize>| scripted.as_ref().filter(|_| happens_at == number);
    if let Err(failed) = strike(&body, &crash, happens(None)).await {
        return finish.end(Err(failed));
    }
    let mut takes_effect_in = usize::try_from(body.dice.below(phases.len() as u64)).unwrap_or(0);
    if let Some(number) = happens_at.filter(|number| *number < phases.len()) {
        takes_effect_in = takes_effect_in.max(number);
    }
    let mut outcome = None;
    for (number, phase) in phases.iter().enumerate() {
        if let Err(stopped) = job.steps.begin(phase) {
            outcome = Some(Err(stopped));
            break;
        }
        if let Some(rule) = happens(Some(number)) {
            // What comes before this phase is done and stays, whatever follows.
            body.effect(&job.work, &Until(Some(*phase)));
            if let Err(failed) = strike(&body, &crash, Some(rule)).await {
                return finish.end(Err(failed));
            }
        }
        if number == takes_effect_in {
            match body.effect(&job.work, &Until(None)) {
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
    if let Err(failed) = strike(&body, &crash, happens(Some(phases.len()))).await {
        return finish.end(Err(failed));
    }
    let mut outcome = outcome.unwrap_or_else(|| Err(DriverError::failed("nothing was done")));
    if body.dice.falls(body.nature.faults.wrong_result) {
        body.counters.fault_wrong_result.add();
        outcome = Ok(body.wrong());
    }
    if scripted.is_some_and(|rule| rule.does == Does::WrongResult) {
        outcome = Ok(body.wrong());
    }
    finish.end(outcome);
}

/// The rule comes to pass here. An error when the task ends with it; none comes back from a death.
async fn strike(body: &Body, crash: &Crash, rule: Option<&Rule>) -> Done<()> {
    let Some(rule) = rule else { return Ok(()) };
    body.counters.fault_script.add();
    match rule.does {
        Does::Fail => return Err(DriverError::new(rule.code, rule.message.clone())),
        Does::Hang => match rule.lasts() {
            Some(lasts) => tokio::time::sleep(lasts).await,
            None => std::future::pending().await,
        },
        Does::Crash => crash.now_for(rule.lasts()).await,
        Does::Offline => body.script.go_offline(rule),
        // Of the result, and of reports.
        Does::WrongResult | Does::Sick => {}
    }
    Ok(())
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
