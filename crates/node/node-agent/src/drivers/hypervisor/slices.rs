//! The life of a slice, in order, over any hypervisor.

use std::sync::{Mutex, MutexGuard, PoisonError};

use node_proto::{
    catalog::{
        InstalledKeys, ProvisionedVm, ReleasedVm, RestartedVm, SlotDevices, VmAuthorizedKeysInput,
        VmProvisionInput, VmReleaseInput, VmRestartInput,
    },
    contract::FailureCode,
};

use super::{Found, Hypervisor, Lease, Leases, Stage, check};
use crate::drivers::{Done, DriverError, Steps};

pub struct Slices {
    hypervisor: Box<dyn Hypervisor>,
    leases: Box<dyn Leases>,
    /// Two owners must not find the same slot free.
    leasing: Mutex<()>,
}

/// All that is known of who has which slots.
struct SlotUse {
    leases: Vec<Lease>,
    machines: Vec<Found>,
}

impl SlotUse {
    fn lease(&self, owner: &str) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.wanted.owner == owner)
    }

    fn machine(&self, owner: &str) -> Option<&Found> {
        self.machines.iter().find(|found| found.owner == owner)
    }

    /// The owner of a machine or lease with something of this slot, if it is not `owner`.
    fn other(&self, owner: &str, slot: &SlotDevices) -> Option<&str> {
        let leased = self.leases.iter().map(|lease| (&lease.wanted.owner, &lease.wanted.slots));
        let found = self.machines.iter().map(|found| (&found.owner, &found.slots));
        let mut all = leased.chain(found).filter(|(other, _)| *other != owner);
        all.find(|(_, slots)| slots.iter().any(|used| overlap(used, slot))).map(|(other, _)| other.as_str())
    }
}

fn overlap(a: &SlotDevices, b: &SlotDevices) -> bool {
    a.slot_index == b.slot_index
        || check::devices_of(a).any(|of_a| check::devices_of(b).any(|of_b| of_a == of_b))
}

fn unavailable(message: String) -> DriverError {
    DriverError::new(FailureCode::Unavailable, message)
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}

fn gpus(slots: &[SlotDevices]) -> u32 {
    count(slots.iter().filter(|slot| slot.pci_address.is_some()).count())
}

impl Slices {
    pub fn new(hypervisor: Box<dyn Hypervisor>, leases: Box<dyn Leases>) -> Self {
        Self { hypervisor, leases, leasing: Mutex::new(()) }
    }

    pub fn provision(&self, input: &VmProvisionInput, steps: &dyn Steps) -> Done<ProvisionedVm> {
        let hypervisor = &*self.hypervisor;
        let keys = check::provision(input)?;
        let wanted = &VmProvisionInput { authorized_keys: keys, ..input.clone() };
        hypervisor.available()?;

        steps.begin("lease")?;
        let there = self.lease(wanted)?;
        steps.begin("host")?;
        hypervisor.prepare_host(wanted)?;
        steps.begin("devices")?;
        hypervisor.take_devices(wanted)?;
        steps.begin("image")?;
        if !there {
            hypervisor.fetch_image(&wanted.image)?;
        }
        steps.begin("seed")?;
        if !there {
            hypervisor.write_seed(wanted)?;
        }
        steps.begin("address")?;
        let address = hypervisor.reserve_address(wanted)?;
        steps.begin("disk")?;
        // A machine is defined after its disk was written: what is there has one, and may be in use.
        if !there {
            hypervisor.write_disk(wanted)?;
        }
        steps.begin("network")?;
        hypervisor.isolate(wanted)?;
        steps.begin("machine")?;
        hypervisor.start(wanted)?;
        steps.begin("readiness")?;
        let gpus_visible = self.ready(&wanted.owner, gpus(&wanted.slots))?;
        if there {
            hypervisor.set_keys(&wanted.owner, &wanted.username, &wanted.authorized_keys)?;
        }
        self.leases.write(&Lease { stage: Stage::Ready, wanted: wanted.clone() })?;
        Ok(ProvisionedVm {
            owner: wanted.owner.clone(),
            ssh_host: address.host,
            ssh_port: address.port,
            gpus_visible,
            created: !there,
        })
    }

    pub fn release(&self, input: &VmReleaseInput, steps: &dyn Steps) -> Done<ReleasedVm> {
        let (hypervisor, owner) = (&*self.hypervisor, input.owner.as_str());
        check::owner(owner)?;
        check::slots(&input.slots)?;
        hypervisor.available()?;
        let mut done = ReleasedVm::default();

        steps.begin("shutdown")?;
        let used = self.slot_use()?;
        let lease = used.lease(owner);
        // What the lease names was touched, and nothing else. Without one it is what the machine has.
        let ours = lease.map(|lease| &lease.wanted.slots);
        let ours: &[SlotDevices] = ours.or_else(|| used.machine(owner).map(|m| &m.slots)).map_or(&[], |s| s);
        if let Some(lease) = lease {
            self.leases.write(&Lease { stage: Stage::Releasing, wanted: lease.wanted.clone() })?;
        }
        done.machine_removed = hypervisor.remove_machine(owner)?;
        steps.begin("disk")?;
        done.disks_wiped = hypervisor.wipe_disks(ours)?;
        steps.begin("devices")?;
        done.devices_reset = hypervisor.free_devices(ours)?;
        steps.begin("network")?;
        hypervisor.clear_network(owner)?;

        steps.begin("lease")?;
        // The lease goes only when nothing is left, so a release that failed is never forgotten.
        clean(owner, hypervisor.left_over(owner, ours)?)?;
        self.leases.remove(owner)?;
        done.lease_removed = lease.is_some();

        steps.begin("verify")?;
        let used = self.slot_use()?;
        if used.lease(owner).is_some() {
            return Err(DriverError::failed(format!(
                "the lease of {owner} is still there; release it again"
            )));
        }
        // Also what was asked for and never leased, unless it is somebody else's by now.
        let asked = input.slots.iter().filter(|slot| used.other(owner, slot).is_none()).cloned();
        clean(owner, hypervisor.left_over(owner, &asked.collect::<Vec<_>>())?)?;
        Ok(done)
    }

    pub fn restart(&self, input: &VmRestartInput, steps: &dyn Steps) -> Done<RestartedVm> {
        check::owner(&input.owner)?;
        self.hypervisor.available()?;
        steps.begin("restart")?;
        let lease = self.lease_of(&input.owner)?;
        self.hypervisor.restart(&input.owner)?;
        steps.begin("readiness")?;
        let gpus_visible = self.ready(&input.owner, gpus(&lease.wanted.slots))?;
        Ok(RestartedVm { gpus_visible })
    }

    pub fn set_keys(&self, input: &VmAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |_, _| true)
    }

    /// Of the installed keys those in `input` stay; none is added.
    pub fn retain_keys(&self, input: &VmAuthorizedKeysInput, steps: &dyn Steps) -> Done<InstalledKeys> {
        self.replace_keys(input, steps, |installed, key| installed.iter().any(|other| other == key))
    }

    fn replace_keys(
        &self,
        input: &VmAuthorizedKeysInput,
        steps: &dyn Steps,
        may_stay: fn(&[String], &str) -> bool,
    ) -> Done<InstalledKeys> {
        check::owner(&input.owner)?;
        check::username(&input.username)?;
        let mut keys = check::keys(&input.authorized_keys)?;
        self.hypervisor.available()?;
        steps.begin("keys")?;
        let lease = self.lease_of(&input.owner)?;
        if lease.wanted.username != input.username {
            let text = format!("{} has no account {} in its machine", input.owner, input.username);
            return Err(DriverError::invalid(text));
        }
        keys.retain(|key| may_stay(&lease.wanted.authorized_keys, key));
        let changed = self.hypervisor.set_keys(&input.owner, &input.username, &keys)?;
        let installed = count(keys.len());
        let wanted = VmProvisionInput { authorized_keys: keys, ..lease.wanted };
        self.leases.write(&Lease { wanted, ..lease })?;
        Ok(InstalledKeys { keys: installed, changed })
    }

    /// Owners of everything that is there or may be: leases of machines that were never finished, and machines
    /// whose lease was lost, are among them.
    pub fn machines(&self) -> Done<Vec<String>> {
        let SlotUse { leases, machines } = self.slot_use()?;
        let leased = leases.into_iter().map(|lease| lease.wanted.owner);
        let mut owners: Vec<_> = leased.chain(machines.into_iter().map(|found| found.owner)).collect();
        owners.sort_unstable();
        owners.dedup();
        Ok(owners)
    }

    fn leasing(&self) -> MutexGuard<'_, ()> {
        self.leasing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot_use(&self) -> Done<SlotUse> {
        Ok(SlotUse { leases: self.leases.all()?, machines: self.hypervisor.machines()? })
    }

    /// Takes the slots, or finds them taken by the same owner for the same machine. Gives whether that is there.
    fn lease(&self, wanted: &VmProvisionInput) -> Done<bool> {
        let owner = wanted.owner.as_str();
        let _leasing = self.leasing();
        let used = self.slot_use()?;
        for slot in &wanted.slots {
            if let Some(other) = used.other(owner, slot) {
                let text =
                    format!("slot {} is leased by {other}; release that machine first", slot.slot_index);
                return Err(unavailable(text));
            }
        }
        let there = used.machine(owner);
        let same = match used.lease(owner) {
            Some(lease) if lease.stage == Stage::Releasing => {
                return Err(unavailable(format!("{owner} is being released; release it to the end first")));
            }
            Some(lease) => lease.is_for(wanted),
            None => there.is_none_or(|found| found.slots == wanted.slots),
        };
        if !same {
            let text = format!("{owner} has another machine here; release it first");
            return Err(DriverError::invalid(text));
        }
        self.leases.write(&Lease { stage: Stage::Making, wanted: wanted.clone() })?;
        Ok(there.is_some())
    }

    /// The lease of a machine that is there and is to stay.
    fn lease_of(&self, owner: &str) -> Done<Lease> {
        let used = self.slot_use()?;
        let lease = used.lease(owner).filter(|lease| lease.stage != Stage::Releasing);
        let lease = lease.filter(|_| used.machine(owner).is_some()).cloned();
        lease.ok_or_else(|| unavailable(format!("{owner} has no machine here; provision it first")))
    }

    fn ready(&self, owner: &str, expected: u32) -> Done<u32> {
        let visible = self.hypervisor.gpus_visible(owner)?;
        if visible != expected {
            return Err(DriverError::failed(format!(
                "the guest of {owner} sees {visible} GPUs and should see {expected}; check the GPUs and their driver"
            )));
        }
        Ok(visible)
    }
}

fn clean(owner: &str, left: Vec<String>) -> Done<()> {
    if left.is_empty() {
        return Ok(());
    }
    let left = left.into_iter().take(20).collect::<Vec<_>>().join("; ");
    Err(DriverError::failed(format!("something of {owner} is left; remove it and release again: {left}")))
}
