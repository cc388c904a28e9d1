//! Meters and their states.

use kernel::ids::{AllocationId, MeterId, OrgId, ProjectId};
use uuid::Uuid;

use super::launch_funds::LaunchCost;

lifecycle::lifecycle! {
    /// Made with the launch, which sets money aside; runs while the allocation is active; settled when everything is
    /// posted. `void` means that the launch failed and nothing was used.
    MeterLifecycle = "meter", initial Held;
    states MeterState {
        Held = "held", Open = "open", Paused = "paused", Closed = "closed", Settled = "settled", Void = "void",
    }
    events MeterEvent {
        Open = "open", Fail = "fail", Pause = "pause", Resume = "resume", Close = "close", Settle = "settle",
    }
    Held on Open => Open;
    Held on Fail => Void;
    Open on Pause => Paused;
    Paused on Resume => Open;
    Open on Close => Closed;
    Paused on Close => Closed;
    Closed on Settle => Settled;
}

lifecycle::named_enum! {
    /// What is counted.
    MeterUnit = "unit of a meter" {
        GpuHour = "gpu_hour",
        NodeHour = "node_hour",
        RuntimeUptimeHour = "runtime_uptime_hour",
        Request = "request",
        JobHour = "job_hour",
    }
}

lifecycle::named_enum! {
    /// What is metered.
    MeterSource = "source of a meter" { Allocation = "allocation", AppRuntime = "app_runtime" }
}

/// Machines of one kind that are launched together.
#[derive(Clone, Debug)]
pub struct Launch {
    pub org: OrgId,
    pub project: ProjectId,
    pub person: Option<Uuid>,
    pub sku: String,
    pub unit: MeterUnit,
    pub units: i32,
    pub unit_price_minor: i64,
    pub currency: String,
    pub allocations: Vec<AllocationId>,
}

impl Launch {
    pub fn cost(&self) -> LaunchCost<'_> {
        LaunchCost {
            unit_price_minor: self.unit_price_minor,
            units: self.units,
            members: u32::try_from(self.allocations.len()).unwrap_or(u32::MAX),
            currency: &self.currency,
        }
    }
}

/// One of them, as its meter will be.
#[derive(Clone, Copy, Debug)]
pub struct LaunchMeter {
    pub id: MeterId,
    pub allocation: AllocationId,
}
