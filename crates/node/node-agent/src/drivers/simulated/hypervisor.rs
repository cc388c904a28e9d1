//! Slices of a simulated machine: leases, machines, disks, devices and rules, each kept as itself, so that what a
//! step has left undone shows. They are the machine's, not the agent's: they survive its crashes.

use std::collections::{BTreeMap, BTreeSet};

use node_proto::catalog::{SlotDevices, VmProvisionInput};
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::drivers::{
    DevicesDriver as _, Done, DriverError, Steps,
    hypervisor::{Address, Found, Hypervisor, Lease, Leases},
};

const FIRST_PORT: u16 = 22_000;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Guests {
    leases: BTreeMap<String, Lease>,
    pub(super) machines: BTreeMap<String, Guest>,
    /// Disks with something on them, and devices that were taken from the host.
    written: BTreeSet<String>,
    taken: BTreeSet<String>,
    /// Owners with rules of the network.
    isolated: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Guest {
    pub(super) slots: Vec<SlotDevices>,
    pub(super) username: String,
    keys: Vec<String>,
}

struct NoSteps;

impl Steps for NoSteps {
    fn begin(&self, _: &'static str) -> Done<()> {
        Ok(())
    }
}

fn disks(slots: &[SlotDevices]) -> impl Iterator<Item = &String> {
    slots.iter().filter_map(|slot| slot.nvme_device.as_ref())
}

fn devices(slots: &[SlotDevices]) -> impl Iterator<Item = &String> {
    slots.iter().flat_map(|slot| [&slot.pci_address, &slot.fabric_vf]).flatten()
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

impl Machine {
    fn guest<T>(&self, owner: &str, with: impl FnOnce(&mut Guest) -> T) -> Done<T> {
        let mut changing = self.changing();
        let guest = changing.guests.machines.get_mut(owner);
        guest.map(with).ok_or_else(|| DriverError::failed(format!("there is no machine of {owner}")))
    }
}

impl Leases for Machine {
    fn all(&self) -> Done<Vec<Lease>> {
        Ok(self.changing().guests.leases.values().cloned().collect())
    }

    fn write(&self, lease: &Lease) -> Done<()> {
        self.changing().guests.leases.insert(lease.wanted.owner.clone(), lease.clone());
        Ok(())
    }

    fn remove(&self, owner: &str) -> Done<()> {
        self.changing().guests.leases.remove(owner);
        Ok(())
    }
}

impl Hypervisor for Machine {
    fn available(&self) -> Done<()> {
        Ok(())
    }

    fn machines(&self) -> Done<Vec<Found>> {
        let changing = self.changing();
        let machines = changing.guests.machines.iter();
        Ok(machines
            .map(|(owner, guest)| Found { owner: owner.clone(), slots: guest.slots.clone() })
            .collect())
    }

    fn prepare_host(&self, wanted: &VmProvisionInput) -> Done<()> {
        let parts = self.profile().parts();
        if wanted.vcpus > parts.cpus || wanted.memory_mib > parts.memory_mib {
            return Err(DriverError::invalid(format!(
                "the machine has {} processors and {} MiB; choose a smaller profile",
                parts.cpus, parts.memory_mib
            )));
        }
        self.needs_disk()
    }

    /// The slots must be this machine's, as its discovery proposed them.
    fn take_devices(&self, wanted: &VmProvisionInput) -> Done<()> {
        let candidates = self.discover(&NoSteps)?.candidates;
        for slot in &wanted.slots {
            let known = candidates.iter().find(|candidate| candidate.slot_index == slot.slot_index);
            let fits = known.is_some_and(|known| {
                (&known.pci_address, &known.nvme_device) == (&slot.pci_address, &slot.nvme_device)
            });
            if !fits {
                return Err(DriverError::invalid(format!(
                    "slot {} of this machine has other devices; discover its topology again",
                    slot.slot_index
                )));
            }
        }
        self.changing().guests.taken.extend(devices(&wanted.slots).cloned());
        Ok(())
    }

    fn fetch_image(&self, _: &str) -> Done<()> {
        self.needs_disk()
    }

    fn write_seed(&self, _: &VmProvisionInput) -> Done<()> {
        self.needs_disk()
    }

    /// On the loopback, other for every machine and slot; nothing listens there.
    fn reserve_address(&self, wanted: &VmProvisionInput) -> Done<Address> {
        let [.., high, low] = self.0.number.to_be_bytes();
        let first = wanted.slots.iter().map(|slot| slot.slot_index).min().unwrap_or(0);
        let port = FIRST_PORT.saturating_add(u16::try_from(first).unwrap_or(0));
        Ok(Address { host: format!("127.1.{high}.{low}"), port })
    }

    fn write_disk(&self, wanted: &VmProvisionInput) -> Done<()> {
        self.changing().guests.written.extend(disks(&wanted.slots).cloned());
        Ok(())
    }

    fn isolate(&self, wanted: &VmProvisionInput) -> Done<()> {
        self.changing().guests.isolated.insert(wanted.owner.clone());
        Ok(())
    }

    fn start(&self, wanted: &VmProvisionInput) -> Done<()> {
        let guest = || Guest {
            slots: wanted.slots.clone(),
            username: wanted.username.clone(),
            keys: wanted.authorized_keys.clone(),
        };
        self.changing().guests.machines.entry(wanted.owner.clone()).or_insert_with(guest);
        Ok(())
    }

    fn gpus_visible(&self, owner: &str) -> Done<u32> {
        self.guest(owner, |guest| count(guest.slots.iter().filter(|slot| slot.pci_address.is_some()).count()))
    }

    fn restart(&self, owner: &str) -> Done<()> {
        self.guest(owner, |_| ())
    }

    fn set_keys(&self, owner: &str, username: &str, keys: &[String]) -> Done<bool> {
        self.guest(owner, |guest| {
            let changed = guest.username != username || guest.keys != keys;
            guest.username = username.to_owned();
            guest.keys = keys.to_vec();
            changed
        })
    }

    fn remove_machine(&self, owner: &str) -> Done<bool> {
        Ok(self.changing().guests.machines.remove(owner).is_some())
    }

    fn wipe_disks(&self, slots: &[SlotDevices]) -> Done<u32> {
        let written = &mut self.changing().guests.written;
        disks(slots).for_each(|disk| {
            written.remove(disk);
        });
        Ok(count(disks(slots).count()))
    }

    fn free_devices(&self, slots: &[SlotDevices]) -> Done<u32> {
        let taken = &mut self.changing().guests.taken;
        devices(slots).for_each(|device| {
            taken.remove(device);
        });
        Ok(count(devices(slots).count()))
    }

    fn clear_network(&self, owner: &str) -> Done<()> {
        self.changing().guests.isolated.remove(owner);
        Ok(())
    }

    fn left_over(&self, owner: &str, slots: &[SlotDevices]) -> Done<Vec<String>> {
        let guests = &self.changing().guests;
        let disks = disks(slots).filter(|disk| guests.written.contains(*disk));
        let devices = devices(slots).filter(|device| guests.taken.contains(*device));
        let mut left: Vec<String> = disks.map(|disk| format!("the disk {disk} is not wiped")).collect();
        left.extend(devices.map(|device| format!("the device {device} is not free")));
        if guests.machines.contains_key(owner) {
            left.push("its machine".to_owned());
        }
        if guests.isolated.contains(owner) {
            left.push("its rules of the network".to_owned());
        }
        Ok(left)
    }
}
