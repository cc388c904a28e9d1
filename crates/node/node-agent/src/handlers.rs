//! From each kind of work to the driver that does it. A kind without a handler does not compile.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use node_proto::{
    Work,
    catalog::{DrainState, SelfUpdateInput},
    contract::FailureCode,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    atomic,
    drivers::{Done, DriverError, Drivers, Steps as _},
    executor::{Job, Track},
};

/// How often a handler that waits for the end of the agent looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whether the node takes new tenants; survives a restart.
#[derive(Clone)]
pub struct DrainMark {
    path: Option<PathBuf>,
    drained: Arc<AtomicBool>,
}

#[derive(Serialize, Deserialize)]
struct Marked {
    drained: bool,
    reason: String,
}

impl DrainMark {
    pub fn in_memory() -> Self {
        Self { path: None, drained: Arc::default() }
    }

    /// In a file; one that cannot be read counts as drained, which harms nobody.
    pub fn open(path: PathBuf) -> Self {
        let drained = match atomic::read(&path, 64 * 1024) {
            Ok(None) => false,
            Ok(Some(bytes)) => serde_json::from_slice::<Marked>(&bytes).map_or(true, |marked| marked.drained),
            Err(_) => true,
        };
        Self { path: Some(path), drained: Arc::new(AtomicBool::new(drained)) }
    }

    pub fn drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    pub fn set(&self, drained: bool, reason: &str) -> Done<DrainState> {
        if let Some(path) = &self.path {
            let marked = Marked { drained, reason: reason.chars().take(500).collect() };
            let kept =
                serde_json::to_vec(&marked).map_err(Into::into).and_then(|bytes| atomic::write(path, &bytes));
            kept.map_err(|error| DriverError::failed(format!("{}: {error}", path.display())))?;
        }
        self.drained.store(drained, Ordering::Relaxed);
        Ok(DrainState { drained })
    }
}

/// Replaces the agent's program.
pub trait Replace: Send + Sync {
    /// Puts the new program in place and asks for a restart. What came of it is known only after that.
    fn replace(&self, input: &SelfUpdateInput, job: &Job) -> Done<()>;
}

pub struct Handlers {
    pub drivers: Arc<Drivers>,
    pub drain: DrainMark,
    /// Absent where the program cannot be replaced.
    pub replace: Option<Box<dyn Replace>>,
}

impl Handlers {
    /// Does the work. Blocking.
    pub fn run(&self, job: &Job) -> Done<Value> {
        let steps = &*job.steps;
        let Drivers { host, devices, diag, power, slices, .. } = &*self.drivers;
        steps.check()?;
        match &job.work {
            Work::TopologyDiscover(_) => output(devices.discover(steps)?),
            Work::VmProvision(_) | Work::ProvisionUser(_) if self.drain.drained() => {
                Err(DriverError::drained())
            }
            Work::VmProvision(input) => output(slices.provision(input, steps)?),
            Work::VmRelease(input) => output(slices.release(input, steps)?),
            Work::VmRestart(input) => output(slices.restart(input, steps)?),
            Work::VmAuthorizedKeys(input) => output(slices.set_keys(input, steps)?),
            Work::VmRetainAuthorizedKeys(input) => output(slices.retain_keys(input, steps)?),
            Work::ProvisionUser(input) => output(host.provision_user(input, steps)?),
            Work::DeprovisionUser(input) => output(host.deprovision_user(input, steps)?),
            Work::InstallAuthorizedKeys(input) => output(host.install_keys(input, steps)?),
            Work::RetainAuthorizedKeys(input) => output(host.retain_keys(input, steps)?),
            Work::Drain(input) => {
                steps.begin("mark")?;
                output(self.drain.set(true, &input.reason)?)
            }
            Work::Undrain(_) => {
                steps.begin("mark")?;
                output(self.drain.set(false, "")?)
            }
            Work::SelfUpdate(input) => {
                let replace = self.replace.as_ref().ok_or_else(|| {
                    DriverError::new(FailureCode::Unavailable, "this agent cannot replace its own program")
                })?;
                replace.replace(input, job)?;
                Err(until_stopped(steps, "the agent did not restart with the new program"))
            }
            Work::Reboot(input) => {
                steps.begin("request")?;
                power.reboot(&input.reason)?;
                steps.begin("boot")?;
                Err(until_stopped(steps, "the machine was asked to reboot and did not go down"))
            }
            Work::HealthProbe(input) => output(diag.probe(input, steps)?),
            Work::Collect(input) => output(diag.collect(input, steps)?),
        }
    }
}

fn output(output: impl Serialize) -> Done<Value> {
    serde_json::to_value(output)
        .map_err(|error| DriverError::failed(format!("the output cannot be written: {error}")))
}

/// Waits for the end of this process. Returns only when it did not come in time.
fn until_stopped(steps: &Track, otherwise: &str) -> DriverError {
    while steps.stopped() != Some(crate::executor::Stop::Timeout) {
        std::thread::sleep(LOOK_EVERY);
    }
    DriverError::new(FailureCode::Timeout, otherwise)
}
