//! What a simulated machine is made of, as discovery would find it on a real one that is ready to serve.

use node_proto::catalog::{
    BlockDevice, CandidateSlot, Gpu, KernelFacts, Nic, NicFabric, NumaNode, SlotKind, Topology,
    VirtualFunction,
};

use super::{
    Machine,
    profile::{GpuParts, Parts},
};
use crate::drivers::{DevicesDriver, Done, Steps, devices::models::model};

/// Groups below this number belong to what the host keeps for itself.
const FIRST_GPU_GROUP: u32 = 40;
const FIRST_VF_GROUP: u32 = 120;
const DATA_DISK_BYTES: u64 = 3_840_755_982_336;
const SYSTEM_DISK_BYTES: u64 = 960_197_124_096;

impl DevicesDriver for Machine {
    fn discover(&self, steps: &dyn Steps) -> Done<Topology> {
        steps.begin("scan")?;
        let parts = self.profile().parts();
        let gpus = parts.gpu.as_ref().map(gpus).unwrap_or_default();
        // A GPU takes a disk of its own; without GPUs, each NUMA node does.
        let places = if gpus.is_empty() { 2 } else { gpus.len() };
        let disks: Vec<BlockDevice> = (0..places).map(|n| self.data_disk(n, places)).collect();
        let nics = nics(&parts);
        steps.begin("propose")?;
        let candidates = if gpus.is_empty() { cpu_slots(&disks) } else { gpu_slots(&gpus, &disks, &nics) };
        let mut block_devices = vec![self.system_disk()];
        block_devices.extend(disks);
        Ok(Topology {
            hostname: self.hostname().to_owned(),
            kernel: KernelFacts {
                release: parts.kernel.to_owned(),
                iommu_enabled: true,
                arguments: parts.arguments.iter().map(|&argument| argument.to_owned()).collect(),
            },
            cpus: parts.cpus,
            memory_mib: parts.memory_mib,
            numa_nodes: numa_nodes(&parts),
            gpus,
            block_devices,
            nics,
            candidates,
            blockers: Vec::new(),
        })
    }
}

impl Machine {
    fn data_disk(&self, index: usize, places: usize) -> BlockDevice {
        let name = format!("nvme{}n1", index + 1);
        BlockDevice {
            by_id: Some(self.disk_id(&name)),
            name,
            size_bytes: DATA_DISK_BYTES,
            numa_node: Some(half(index, places)),
            in_use: false,
        }
    }

    fn system_disk(&self) -> BlockDevice {
        BlockDevice {
            by_id: Some(self.disk_id("nvme0n1")),
            name: "nvme0n1".to_owned(),
            size_bytes: SYSTEM_DISK_BYTES,
            numa_node: Some(0),
            in_use: true,
        }
    }

    /// Serial numbers differ between machines and are the same at every discovery.
    fn disk_id(&self, name: &str) -> String {
        let question =
            name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        format!("nvme-SIMULATED_{:012X}", self.trait_below(question, 1 << 48))
    }
}

/// The NUMA node of the `index`th of `count` devices.
fn half(index: usize, count: usize) -> u32 {
    u32::from(index * 2 >= count)
}

fn numa_nodes(parts: &Parts) -> Vec<NumaNode> {
    let node = |(id, cpus): (u32, &&str)| NumaNode {
        id,
        cpus: (*cpus).to_owned(),
        memory_mib: parts.memory_mib / 2,
    };
    (0..).zip(&parts.cpu_lists).map(node).collect()
}

pub(super) fn gpu_address(bus: u8) -> String {
    format!("0000:{bus:02x}:00.0")
}

fn gpus(parts: &GpuParts) -> Vec<Gpu> {
    let gpu = |(index, &bus): (usize, &u8)| Gpu {
        pci_address: gpu_address(bus),
        vendor: parts.vendor,
        device_id: parts.device_id.to_owned(),
        model: model(parts.vendor, parts.device_id).to_owned(),
        numa_node: Some(half(index, parts.buses.len())),
        iommu_group: Some(FIRST_GPU_GROUP + count(index)),
        iommu_group_members: vec![gpu_address(bus)],
        driver: Some("vfio-pci".to_owned()),
    };
    parts.buses.iter().enumerate().map(gpu).collect()
}

/// One port of the fabric beside each GPU, with one virtual function; and one for the host itself.
fn nics(parts: &Parts) -> Vec<Nic> {
    let mut nics = vec![Nic {
        pci_address: "0000:01:00.0".to_owned(),
        interface: Some("eno1".to_owned()),
        fabric: NicFabric::Ethernet,
        numa_node: Some(0),
        vfs_total: 0,
        vfs: Vec::new(),
    }];
    let Some(gpu) = &parts.gpu else { return nics };
    nics.extend(gpu.buses.iter().enumerate().map(|(index, bus)| {
        let bus = bus.wrapping_sub(1);
        Nic {
            pci_address: format!("0000:{bus:02x}:00.0"),
            interface: Some(match parts.fabric {
                NicFabric::Infiniband => format!("ibp{bus}s0"),
                NicFabric::Roce | NicFabric::Ethernet => format!("enp{bus}s0np0"),
            }),
            fabric: parts.fabric,
            numa_node: Some(half(index, gpu.buses.len())),
            vfs_total: 16,
            vfs: vec![VirtualFunction {
                pci_address: format!("0000:{bus:02x}:00.2"),
                iommu_group: Some(FIRST_VF_GROUP + count(index)),
                driver: Some("vfio-pci".to_owned()),
            }],
        }
    }));
    nics
}

fn gpu_slots(gpus: &[Gpu], disks: &[BlockDevice], nics: &[Nic]) -> Vec<CandidateSlot> {
    let fabric = nics.iter().filter(|nic| !nic.vfs.is_empty());
    let parts = gpus.iter().zip(disks).zip(fabric).enumerate();
    parts
        .map(|(index, ((gpu, disk), nic))| CandidateSlot {
            slot_index: count(index),
            kind: SlotKind::Gpu,
            pci_address: Some(gpu.pci_address.clone()),
            model: gpu.model.clone(),
            iommu_group: gpu.iommu_group,
            nvme_device: disk.by_id.clone(),
            numa_node: gpu.numa_node,
            fabric_vf: nic.vfs.first().map(|vf| vf.pci_address.clone()),
            blockers: Vec::new(),
        })
        .collect()
}

fn cpu_slots(disks: &[BlockDevice]) -> Vec<CandidateSlot> {
    let slot = |(index, disk): (usize, &BlockDevice)| CandidateSlot {
        slot_index: count(index),
        kind: SlotKind::Cpu,
        pci_address: None,
        model: String::new(),
        iommu_group: None,
        nvme_device: disk.by_id.clone(),
        numa_node: disk.numa_node,
        fabric_vf: None,
        blockers: Vec::new(),
    };
    disks.iter().enumerate().map(slot).collect()
}

fn count(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
