//! What the machine is made of, read from `/sys`, `/proc` and `/dev`. It changes nothing, runs nothing, and only
//! proposes: what stands in the way of a slot is told with it.
//!
//! The trees are the kernel's, but nothing is taken for granted: files may be missing, huge or nonsense, links
//! may lead nowhere. Such things become blockers, or are left out; they never end the discovery.

mod block;
pub(super) mod models;
mod pci;
mod slots;
mod tree;

use std::path::Path;

use node_proto::catalog::{Blocker, Gpu, KernelFacts, NumaNode, Topology};

use super::{DevicesDriver, Done, DriverError, Steps, files::read_bounded};
use crate::config::Roots;

const NODES_AT_MOST: usize = 1024;
const ARGUMENTS_AT_MOST: usize = 64;
const ARGUMENT_CHARS: usize = 256;
/// Kernel arguments that decide whether devices can be handed over.
const ARGUMENTS: &[&str] = &[
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "vfio",
    "vfio-pci",
    "vfio_iommu_type1",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "pci",
    "pcie_acs_override",
    "isolcpus",
    "nohz_full",
    "mitigations",
    "numa_balancing",
    "modprobe.blacklist",
    "rd.driver.pre",
    "nvidia-drm",
    "amdgpu",
];

pub struct RealDevices {
    roots: Roots,
}

impl RealDevices {
    pub fn new(roots: Roots) -> Self {
        Self { roots }
    }

    /// The GPUs alone, for checks that need no more.
    pub fn gpus(&self) -> Vec<Gpu> {
        pci::Bus::read(&self.roots.sysfs, None, &mut Vec::new()).gpus()
    }
}

fn blocker(code: &str, subject: &str, message: &str) -> Blocker {
    Blocker { code: code.to_owned(), subject: subject.to_owned(), message: message.to_owned() }
}

impl DevicesDriver for RealDevices {
    fn discover(&self, steps: &dyn Steps) -> Done<Topology> {
        steps.begin("scan")?;
        let Roots { sysfs, proc, .. } = &self.roots;
        if !sysfs.is_dir() {
            return Err(DriverError::failed(format!("{} is not there; mount sysfs", sysfs.display())));
        }
        let mut blockers = Vec::new();
        let numa_nodes = nodes(sysfs);
        let only_node = match numa_nodes.as_slice() {
            [only] => Some(only.id),
            _ => None,
        };
        if numa_nodes.is_empty() {
            blockers.push(blocker(
                "numa_unknown",
                "node",
                "The kernel lists no NUMA node. Use a kernel with NUMA support.",
            ));
        }
        let bus = pci::Bus::read(sysfs, only_node, &mut blockers);
        let (gpus, nics) = (bus.gpus(), bus.nics());
        let block_devices = block::disks(&self.roots, only_node);
        let iommu_enabled = bus.iommu_enabled();
        if !iommu_enabled && !gpus.is_empty() {
            let message = "No device has an IOMMU group. Enable the IOMMU in the firmware and add intel_iommu=on or amd_iommu=on to the kernel's command line.";
            blockers.push(blocker("iommu_disabled", "node", message));
        }
        let memory_mib = meminfo(&proc.join("meminfo"), "MemTotal:").unwrap_or(0);
        let cpus = tree::text(&sysfs.join("devices/system/cpu/online")).map_or(0, |list| count(&list));
        if memory_mib == 0 || cpus == 0 {
            blockers.push(blocker(
                "kernel_unreadable",
                "node",
                "The kernel does not say how many processors or how much memory there is.",
            ));
        }

        steps.begin("propose")?;
        let candidates = slots::propose(&slots::Machine {
            bus: &bus,
            gpus: &gpus,
            nics: &nics,
            disks: &block_devices,
            nodes: &numa_nodes,
            iommu_enabled,
        });
        Ok(Topology {
            hostname: tree::text(&proc.join("sys/kernel/hostname")).unwrap_or_default(),
            kernel: KernelFacts {
                release: tree::text(&proc.join("sys/kernel/osrelease")).unwrap_or_default(),
                iommu_enabled,
                arguments: arguments(&proc.join("cmdline")),
            },
            cpus,
            memory_mib,
            numa_nodes,
            gpus,
            block_devices,
            nics,
            candidates,
            blockers,
        })
    }
}

fn nodes(sysfs: &Path) -> Vec<NumaNode> {
    let dir = sysfs.join("devices/system/node");
    let node = |name: String| {
        let id = name.strip_prefix("node")?.parse().ok()?;
        let dir = dir.join(&name);
        let cpus = tree::text(&dir.join("cpulist")).filter(|list| is_list(list)).unwrap_or_default();
        let memory_mib = meminfo(&dir.join("meminfo"), "MemTotal:").unwrap_or(0);
        // A node of memory alone cannot run anything.
        (!cpus.is_empty()).then_some(NumaNode { id, cpus, memory_mib })
    };
    let mut nodes: Vec<_> = tree::names(&dir).into_iter().filter_map(node).take(NODES_AT_MOST).collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

/// `0-47,96-143`
fn is_list(list: &str) -> bool {
    list.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b',')
}

fn count(list: &str) -> u32 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(range).fold(0, u32::saturating_add)
}

/// A line `MemTotal:  1234 kB`, also with `Node 0 ` before it, in MiB.
fn meminfo(path: &Path, name: &str) -> Option<u64> {
    let (bytes, _) = read_bounded(path, 64 * 1024).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let rest = text.lines().find_map(|line| line.split_once(name).map(|(_, rest)| rest))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
}

fn arguments(path: &Path) -> Vec<String> {
    let Ok((bytes, _)) = read_bounded(path, 64 * 1024) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let matters = |argument: &&str| {
        let name = argument.split('=').next().unwrap_or_default();
        let module = name.split('.').next().unwrap_or_default();
        ARGUMENTS.contains(&name) || ARGUMENTS.contains(&module)
    };
    let short = |argument: &str| argument.chars().take(ARGUMENT_CHARS).collect();
    text.split_whitespace().filter(matters).take(ARGUMENTS_AT_MOST).map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted_whatever_they_say() {
        assert_eq!(count("0-47,96-143"), 96);
        assert_eq!(count("3"), 1);
        assert_eq!(count("5-2,x,,-"), 0);
        assert_eq!(count("0-4294967295,1"), 1);
    }
}
