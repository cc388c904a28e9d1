//! Slices: virtual machines with GPUs of their own.
//!
//! **How it works.** [`Slices`] knows the order of things and what survives a crash; a [`Hypervisor`] does one
//! step at a time and knows nothing of the others. So every hypervisor shares the same checks, leases and phases.
//!
//! **Leases.** A machine's slots are leased to its owner before anything is touched, and the lease is given back
//! after nothing is left. It says how far things have come: `making`, `ready`, `releasing`. What a crash has left
//! stays leased, shows in the inventory, and can be provisioned or released again, whichever is asked for. A
//! machine whose lease was lost counts as leased all the same: the hypervisor is asked which there are.
//!
//! **What it promises.** A slot is never in two machines. A machine that runs is not written over. Nothing of
//! another owner is touched by a release, whatever slots it names.

mod absent;
mod check;
mod lease;
mod slices;

use node_proto::catalog::{SlotDevices, VmProvisionInput};

pub use absent::NoHypervisor;
pub use lease::{FileLeases, Lease, Leases, Stage};
pub use slices::Slices;

use super::Done;

/// Where a guest answers by SSH, as seen from outside the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// A machine that is defined, running or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub owner: String,
    pub slots: Vec<SlotDevices>,
}

/// One step each. Every step looks at what is there first and can be asked again; every wait in it has a limit.
pub trait Hypervisor: Send + Sync {
    /// An error when there is no hypervisor to ask; nothing was touched then.
    fn available(&self) -> Done<()>;
    /// Machines that this agent made, by what the hypervisor itself knows.
    fn machines(&self) -> Done<Vec<Found>>;

    /// What the host needs for it: programs, memory, the IOMMU.
    fn prepare_host(&self, wanted: &VmProvisionInput) -> Done<()>;
    /// Each device is taken from the host, whole groups only, and checked.
    fn take_devices(&self, wanted: &VmProvisionInput) -> Done<()>;
    /// The image is in the cache, and is what its digest says.
    fn fetch_image(&self, image: &str) -> Done<()>;
    fn write_seed(&self, wanted: &VmProvisionInput) -> Done<()>;
    fn reserve_address(&self, wanted: &VmProvisionInput) -> Done<Address>;
    /// Writes the image to the slot's disk. Never asked when the machine is there.
    fn write_disk(&self, wanted: &VmProvisionInput) -> Done<()>;
    fn isolate(&self, wanted: &VmProvisionInput) -> Done<()>;
    /// Defined and started.
    fn start(&self, wanted: &VmProvisionInput) -> Done<()>;
    /// Waits until the guest answers, and counts the GPUs that it sees.
    fn gpus_visible(&self, owner: &str) -> Done<u32>;

    fn restart(&self, owner: &str) -> Done<()>;
    /// The complete desired set; true when it was another before.
    fn set_keys(&self, owner: &str, username: &str, keys: &[String]) -> Done<bool>;

    /// Asked to shut down, then made to; removed. False when there was none.
    fn remove_machine(&self, owner: &str) -> Done<bool>;
    /// Gives how many disks were wiped, and proved so.
    fn wipe_disks(&self, slots: &[SlotDevices]) -> Done<u32>;
    /// Gives how many devices were given back to the host and reset.
    fn free_devices(&self, slots: &[SlotDevices]) -> Done<u32>;
    /// Rules, address and seed are gone.
    fn clear_network(&self, owner: &str) -> Done<()>;
    /// What is still there of the owner or on the slots, in words. Empty when all is clean.
    fn left_over(&self, owner: &str, slots: &[SlotDevices]) -> Done<Vec<String>>;
}
