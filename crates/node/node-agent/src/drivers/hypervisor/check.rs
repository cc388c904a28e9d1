//! What is asked is checked before anything is done.

use std::collections::BTreeSet;

use node_proto::catalog::{SlotDevices, VmProvisionInput};

pub use crate::drivers::host::check::{keys, owner, username};
use crate::drivers::{Done, DriverError};

const SLOTS_AT_MOST: usize = 64;
const NAME_BYTES: usize = 128;

/// The keys as they are written.
pub fn provision(input: &VmProvisionInput) -> Done<Vec<String>> {
    owner(&input.owner)?;
    username(&input.username)?;
    slots(&input.slots)?;
    if input.slots.is_empty() {
        return Err(DriverError::invalid("a machine needs at least one slot"));
    }
    if input.vcpus == 0 || input.memory_mib == 0 {
        return Err(DriverError::invalid("a machine needs processors and memory"));
    }
    if !plain(&input.image) {
        return Err(DriverError::invalid("the image must be a name of the catalog"));
    }
    keys(&input.authorized_keys)
}

/// Devices become paths and arguments further down: only plain names pass, each once.
pub fn slots(slots: &[SlotDevices]) -> Done<()> {
    if slots.len() > SLOTS_AT_MOST {
        return Err(DriverError::invalid(format!("at most {SLOTS_AT_MOST} slots")));
    }
    let (mut indexes, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for slot in slots {
        if !indexes.insert(slot.slot_index) {
            return Err(DriverError::invalid(format!("slot {} is named twice", slot.slot_index)));
        }
        for device in devices_of(slot) {
            if !plain(device) {
                return Err(DriverError::invalid(format!(
                    "slot {}: a device has an odd name",
                    slot.slot_index
                )));
            }
            if !devices.insert(device) {
                return Err(DriverError::invalid(format!("the device {device} is named twice")));
            }
        }
    }
    Ok(())
}

pub fn devices_of(slot: &SlotDevices) -> impl Iterator<Item = &str> {
    [&slot.pci_address, &slot.nvme_device, &slot.fabric_vf].into_iter().flatten().map(String::as_str)
}

fn plain(name: &str) -> bool {
    let good = name.chars().all(|c| c.is_ascii_alphanumeric() || "._:+-".contains(c));
    good && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= NAME_BYTES
}
