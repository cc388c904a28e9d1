//! The hypervisor of a machine that has none.

use node_proto::{
    catalog::{SlotDevices, VmProvisionInput},
    contract::FailureCode,
};

use super::{Address, Found, Hypervisor};
use crate::drivers::{Done, DriverError};

/// Refuses everything, and touches nothing.
pub struct NoHypervisor;

fn none<T>() -> Done<T> {
    Err(DriverError::new(
        FailureCode::Unavailable,
        "this agent has no hypervisor driver; offer the machine as a whole, or update the agent to one that has it",
    ))
}

impl Hypervisor for NoHypervisor {
    fn available(&self) -> Done<()> {
        none()
    }
    fn machines(&self) -> Done<Vec<Found>> {
        Ok(Vec::new())
    }
    fn prepare_host(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn take_devices(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn fetch_image(&self, _: &str) -> Done<()> {
        none()
    }
    fn write_seed(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn reserve_address(&self, _: &VmProvisionInput) -> Done<Address> {
        none()
    }
    fn write_disk(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn isolate(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn start(&self, _: &VmProvisionInput) -> Done<()> {
        none()
    }
    fn gpus_visible(&self, _: &str) -> Done<u32> {
        none()
    }
    fn restart(&self, _: &str) -> Done<()> {
        none()
    }
    fn set_keys(&self, _: &str, _: &str, _: &[String]) -> Done<bool> {
        none()
    }
    fn remove_machine(&self, _: &str) -> Done<bool> {
        none()
    }
    fn wipe_disks(&self, _: &[SlotDevices]) -> Done<u32> {
        none()
    }
    fn free_devices(&self, _: &[SlotDevices]) -> Done<u32> {
        none()
    }
    fn clear_network(&self, _: &str) -> Done<()> {
        none()
    }
    fn left_over(&self, _: &str, _: &[SlotDevices]) -> Done<Vec<String>> {
        none()
    }
}
