//! Which GPU goes with which disk and which virtual function. Deterministic: the same machine always gives the
//! same proposal, in the order of the GPUs' addresses.

use std::collections::BTreeSet;

use node_proto::catalog::{BlockDevice, Blocker, CandidateSlot, Gpu, Nic, NicFabric, NumaNode, SlotKind};

use super::{blocker, models, pci::Bus};

/// Drivers that leave a device free to be handed to a virtual machine.
const PASSTHROUGH: &str = "vfio-pci";

pub struct Machine<'a> {
    pub bus: &'a Bus,
    pub gpus: &'a [Gpu],
    pub nics: &'a [Nic],
    pub disks: &'a [BlockDevice],
    pub nodes: &'a [NumaNode],
    pub iommu_enabled: bool,
}

pub fn propose(machine: &Machine<'_>) -> Vec<CandidateSlot> {
    let mut used = BTreeSet::new();
    if machine.gpus.is_empty() {
        let slots =
            machine.nodes.iter().zip(0..).map(|(node, index)| cpu_slot(machine, node, index, &mut used));
        return slots.collect();
    }
    machine.gpus.iter().zip(0..).map(|(gpu, index)| gpu_slot(machine, gpu, index, &mut used)).collect()
}

fn gpu_slot(machine: &Machine<'_>, gpu: &Gpu, slot_index: u32, used: &mut BTreeSet<String>) -> CandidateSlot {
    let at = gpu.pci_address.as_str();
    let mut blockers = Vec::new();
    let mut block = |code, message: &str| blockers.push(blocker(code, at, message));
    if gpu.model == models::UNKNOWN {
        block("model_unknown", "This device is not in the table of known GPUs. Update the agent.");
    }
    if !machine.iommu_enabled {
        block("iommu_disabled", "Enable the IOMMU in the firmware and on the kernel's command line.");
    } else if gpu.iommu_group.is_none() {
        block(
            "iommu_group_missing",
            "The GPU has no IOMMU group. Check the firmware's settings for its slot.",
        );
    }
    let strangers = machine.bus.strangers(at, gpu.iommu_group);
    if !strangers.is_empty() {
        let message = format!(
            "The GPU shares its IOMMU group with {}. Enable ACS in the firmware or move the device.",
            strangers.iter().take(8).copied().collect::<Vec<_>>().join(", ")
        );
        block("iommu_group_shared", &message);
    }
    if let Some(driver) = gpu.driver.as_deref().filter(|driver| *driver != PASSTHROUGH) {
        block(
            "driver_bound",
            &format!("The GPU is held by {driver}. Bind it to {PASSTHROUGH} to sell it as a slice."),
        );
    }
    let (mut disk, mut vf) = (None, None);
    match gpu.numa_node {
        None => block(
            "numa_unknown",
            "The kernel does not say which NUMA node the GPU is on. Update the firmware.",
        ),
        Some(node) => {
            disk = take_disk(machine, node, used);
            vf = take_vf(machine, at, node, used);
            if disk.is_none() {
                block("no_nvme", "There is no free NVMe disk with a stable name on the GPU's NUMA node.");
            }
            if vf.is_none() {
                block(
                    "no_fabric_vf",
                    "There is no free virtual function of a fabric card on the GPU's NUMA node. Enable SR-IOV.",
                );
            }
        }
    }
    CandidateSlot {
        slot_index,
        kind: SlotKind::Gpu,
        pci_address: Some(gpu.pci_address.clone()),
        model: gpu.model.clone(),
        iommu_group: gpu.iommu_group,
        nvme_device: disk,
        numa_node: gpu.numa_node,
        fabric_vf: vf,
        blockers,
    }
}

fn cpu_slot(
    machine: &Machine<'_>,
    node: &NumaNode,
    slot_index: u32,
    used: &mut BTreeSet<String>,
) -> CandidateSlot {
    let disk = take_disk(machine, node.id, used);
    let mut blockers: Vec<Blocker> = Vec::new();
    if disk.is_none() {
        let message = "There is no free NVMe disk with a stable name on this NUMA node.";
        blockers.push(blocker("no_nvme", &format!("numa{}", node.id), message));
    }
    CandidateSlot {
        slot_index,
        kind: SlotKind::Cpu,
        pci_address: None,
        model: String::new(),
        iommu_group: None,
        nvme_device: disk,
        numa_node: Some(node.id),
        fabric_vf: take_vf(machine, "", node.id, used),
        blockers,
    }
}

fn take_disk(machine: &Machine<'_>, node: u32, used: &mut BTreeSet<String>) -> Option<String> {
    let free = |disk: &&BlockDevice| !disk.in_use && disk.size_bytes > 0 && disk.numa_node == Some(node);
    let names = machine.disks.iter().filter(free).filter_map(|disk| disk.by_id.as_ref());
    let name = names.into_iter().find(|name| !used.contains(*name))?.clone();
    used.insert(name.clone());
    Some(name)
}

/// The nearest card first (the one that shares the most of the way to the processor), then the one with the
/// fewest functions in use, then by address.
fn take_vf(machine: &Machine<'_>, gpu: &str, node: u32, used: &mut BTreeSet<String>) -> Option<String> {
    let near = |nic: &Nic| {
        let (gpu, nic) = (machine.bus.functions.get(gpu), machine.bus.functions.get(&nic.pci_address));
        gpu.zip(nic).map_or(0, |(a, b)| {
            a.path.components().zip(b.path.components()).take_while(|(a, b)| a == b).count()
        })
    };
    let free = |nic: &Nic, used: &BTreeSet<String>| {
        nic.vfs.iter().map(|vf| &vf.pci_address).find(|vf| !used.contains(*vf)).cloned()
    };
    let best = machine
        .nics
        .iter()
        .filter(|nic| nic.fabric != NicFabric::Ethernet && nic.numa_node == Some(node))
        .filter_map(|nic| {
            let taken = nic.vfs.iter().filter(|vf| used.contains(&vf.pci_address)).count();
            Some((std::cmp::Reverse(near(nic)), taken, nic.pci_address.as_str(), free(nic, used)?))
        })
        .min()?;
    used.insert(best.3.clone());
    Some(best.3)
}
