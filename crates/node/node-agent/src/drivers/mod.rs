//! What the agent does to the machine, behind traits: each has a real implementation and a simulated one.
//!
//! Drivers are plain, blocking functions. The executor gives each task a thread of its own, so a driver that
//! hangs holds up nothing but its task, and nothing privileged runs inside the network side's event loop.
//! Every driver can be asked again after a crash: what is there already, as asked, is not an error.

pub mod devices;
pub mod diag;
pub mod files;
pub mod gpu;
pub mod host;
pub mod hypervisor;
pub mod power;
pub mod real;
pub mod simulated;

use kernel::Ambient;
use node_proto::{
    catalog::{
        CollectInput, Collection, DeprovisionUserInput, DeprovisionedUser, GpuReading, HealthProbeInput,
        HealthReport, InstallAuthorizedKeysInput, InstalledKeys, ProvisionUserInput, ProvisionedUser,
        Topology,
    },
    contract::{FailureCause, FailureCode, Finding, NodeMetrics},
};

/// Why a driver could not do what it was asked. The message is for operators and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DriverError {
    pub code: FailureCode,
    pub message: String,
    pub cause: Option<FailureCause>,
}

impl DriverError {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cause: None }
    }

    /// The node takes no new tenants.
    pub fn drained() -> Self {
        let error = Self::new(FailureCode::Unavailable, "the node is drained; undrain it first");
        Self { cause: Some(FailureCause::Drained), ..error }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Driver, message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Invalid, message)
    }
}

pub type Done<T> = Result<T, DriverError>;

/// How a driver tells which phase it has come to, and learns that it should stop or has run out of time.
pub trait Steps: Send + Sync {
    /// Begins the named phase (and ends the one before). An error means: stop now, cleanly.
    fn begin(&self, phase: &'static str) -> Done<()>;
}

/// Users of a whole machine.
pub trait HostDriver: Send + Sync {
    fn provision_user(&self, input: &ProvisionUserInput, steps: &dyn Steps) -> Done<ProvisionedUser>;
    fn deprovision_user(&self, input: &DeprovisionUserInput, steps: &dyn Steps) -> Done<DeprovisionedUser>;
    fn install_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys>;
    /// Of the installed keys those in `input` stay; none is added.
    fn retain_keys(&self, input: &InstallAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys>;
    /// Accounts that this driver made and that are still there.
    fn users(&self) -> Done<Vec<String>>;
}

/// What the machine is made of.
pub trait DevicesDriver: Send + Sync {
    fn discover(&self, steps: &dyn Steps) -> Done<Topology>;
}

/// The GPUs as their vendor's tools see them.
pub trait GpuDriver: Send + Sync {
    fn readings(&self) -> Done<Vec<GpuReading>>;
    /// What the kernel log and the vendor's tools report since the last call.
    fn findings(&self) -> Done<Vec<Finding>>;
}

/// Checks and collections.
pub trait DiagDriver: Send + Sync {
    fn probe(&self, input: &HealthProbeInput, steps: &dyn Steps) -> Done<HealthReport>;
    fn collect(&self, input: &CollectInput, steps: &dyn Steps) -> Done<Collection>;
    fn metrics(&self) -> NodeMetrics;
    /// What is wrong with the machine itself; told as long as it lasts.
    fn findings(&self) -> Vec<Finding>;
}

pub trait PowerDriver: Send + Sync {
    /// Differs after every boot.
    fn boot_id(&self) -> String;
    /// Asks for a reboot and returns; the machine goes down a little later.
    fn reboot(&self, reason: &str) -> Done<()>;
}

/// All that a node needs to do its work.
pub struct Drivers {
    pub ambient: Ambient,
    pub host: Box<dyn HostDriver>,
    pub devices: Box<dyn DevicesDriver>,
    pub gpu: Box<dyn GpuDriver>,
    pub diag: Box<dyn DiagDriver>,
    pub power: Box<dyn PowerDriver>,
    pub slices: hypervisor::Slices,
}

impl Drivers {
    /// All that is wrong, the machine itself first. What cannot be asked says so in the log, not here.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = self.diag.findings();
        found.extend(self.gpu.findings().unwrap_or_default());
        found
    }
}
