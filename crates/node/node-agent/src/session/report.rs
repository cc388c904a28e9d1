//! What a node reports of itself with every heartbeat.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use node_proto::contract::{Finding, Inventory, NodeMetrics};

use crate::{drivers::Drivers, handlers::DrainMark};

/// Findings that are not reported yet; beyond this number the youngest are dropped.
pub(super) const MOST_FINDINGS: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub inventory: Inventory,
    /// New since the previous report; the session keeps them until they were received.
    pub findings: Vec<Finding>,
    pub metrics: NodeMetrics,
}

pub type Reporting<'a> = Pin<Box<dyn Future<Output = Report> + Send + 'a>>;

pub trait ReportSource: Send + Sync + 'static {
    fn report(&self) -> Reporting<'_>;
}

/// A closure that has its report at hand, as simulated nodes do.
impl<F: Fn() -> Report + Send + Sync + 'static> ReportSource for F {
    fn report(&self) -> Reporting<'_> {
        let report = self();
        Box::pin(async move { report })
    }
}

/// From the drivers of a real machine. They may block, so they are asked on a thread, and not again while it
/// hangs: a heartbeat goes out with what was known before rather than late.
pub struct MachineReports {
    drivers: Arc<Drivers>,
    drain: DrainMark,
    known: Arc<Known>,
}

/// What the drivers said last, and whether they are being asked.
#[derive(Default)]
struct Known {
    asking: AtomicBool,
    report: Mutex<Report>,
}

/// How long a heartbeat waits for the drivers.
const PATIENCE: Duration = Duration::from_secs(10);

impl Known {
    fn lock(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Whatever way the asking ends, the drivers can be asked again.
struct Asking(Arc<Known>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.store(false, Ordering::Relaxed);
    }
}

impl MachineReports {
    pub fn new(drivers: Arc<Drivers>, drain: DrainMark) -> Self {
        Self { drivers, drain, known: Arc::default() }
    }
}

fn ask(drivers: &Drivers, known: &Known) {
    let (users, machines) = (drivers.host.users(), drivers.slices.machines());
    let found = drivers.findings();
    let metrics = drivers.diag.metrics();
    let mut report = known.lock();
    if let Ok(users) = users {
        report.inventory.users = users;
    }
    if let Ok(machines) = machines {
        report.inventory.machines = machines;
    }
    report.findings.extend(found);
    report.findings.truncate(MOST_FINDINGS);
    report.metrics = metrics;
}

impl ReportSource for MachineReports {
    fn report(&self) -> Reporting<'_> {
        Box::pin(async move {
            if !self.known.asking.swap(true, Ordering::Relaxed) {
                let (drivers, asking) = (self.drivers.clone(), Asking(self.known.clone()));
                let asked = tokio::task::spawn_blocking(move || ask(&drivers, &asking.0));
                let _ = tokio::time::timeout(PATIENCE, asked).await;
            }
            let mut known = self.known.lock();
            known.inventory.drained = self.drain.drained();
            let findings = std::mem::take(&mut known.findings);
            Report { findings, ..known.clone() }
        })
    }
}
