//! Whose a simulated machine is, and what of it: for those who show it to its tenants.

use node_proto::catalog::GpuReading;

use super::{Machine, mix};
use crate::drivers::GpuDriver as _;

/// An owner on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub username: String,
    /// All of a whole machine; of a slice only those of its slots.
    pub gpus: Vec<TenantGpu>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantGpu {
    /// As the vendor's tools write it. Always the same for this GPU.
    pub uuid: String,
    pub reading: GpuReading,
}

impl Machine {
    /// `None` when the owner has neither an account nor a guest here.
    pub fn tenant(&self, owner: &str) -> Option<Tenant> {
        let (username, addresses) = self.tenancy(owner)?;
        // Simulated drivers always know.
        let mut readings = self.readings().unwrap_or_default();
        if let Some(addresses) = addresses {
            readings.retain(|reading| addresses.contains(&reading.pci_address));
        }
        let gpu = |reading: GpuReading| TenantGpu { uuid: self.gpu_uuid(&reading.pci_address), reading };
        Some(Tenant { username, gpus: readings.into_iter().map(gpu).collect() })
    }

    /// The user's name, and of a slice the addresses of its GPUs.
    fn tenancy(&self, owner: &str) -> Option<(String, Option<Vec<String>>)> {
        let changing = self.changing();
        if let Some((name, _)) = changing.accounts.iter().find(|(_, account)| account.owner == owner) {
            return Some((name.clone(), None));
        }
        let guest = changing.guests.machines.get(owner)?;
        let addresses = guest.slots.iter().filter_map(|slot| slot.pci_address.clone()).collect();
        Some((guest.username.clone(), Some(addresses)))
    }

    fn gpu_uuid(&self, address: &str) -> String {
        let seed = address.bytes().fold(self.0.number, |seed, byte| mix(seed ^ u64::from(byte)));
        let (high, low) = (mix(seed), mix(seed ^ 0x0067_7075));
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
        let (d, e) = (low >> 48, low & 0xffff_ffff_ffff);
        format!("GPU-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}
