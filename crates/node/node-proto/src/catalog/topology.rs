//! What discovery finds, and the slots it proposes. It only proposes: an operator approves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyDiscoverInput {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    pub hostname: String,
    pub kernel: KernelFacts,
    pub cpus: u32,
    pub memory_mib: u64,
    pub numa_nodes: Vec<NumaNode>,
    pub gpus: Vec<Gpu>,
    pub block_devices: Vec<BlockDevice>,
    pub nics: Vec<Nic>,
    /// Ordered by slot index, which follows the GPUs' PCI addresses.
    pub candidates: Vec<CandidateSlot>,
    /// What stands in the way of the whole node.
    pub blockers: Vec<Blocker>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelFacts {
    pub release: String,
    pub iommu_enabled: bool,
    /// Only arguments that matter here (`iommu`, `vfio`, `hugepages`, …).
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumaNode {
    pub id: u32,
    /// As the kernel writes it: `0-47,96-143`.
    pub cpus: String,
    pub memory_mib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GpuVendor {
    Nvidia,
    Amd,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// `0000:1b:00.0`
    pub pci_address: String,
    pub vendor: GpuVendor,
    /// Four hex digits.
    pub device_id: String,
    /// By the table of known devices, or `unknown`.
    pub model: String,
    pub numa_node: Option<u32>,
    pub iommu_group: Option<u32>,
    /// Every PCI function in the same group, this one included.
    pub iommu_group_members: Vec<String>,
    /// The kernel driver that holds it.
    pub driver: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockDevice {
    /// `nvme0n1`
    pub name: String,
    /// The stable name below `/dev/disk/by-id`.
    pub by_id: Option<String>,
    pub size_bytes: u64,
    pub numa_node: Option<u32>,
    /// Mounted, or part of what is mounted: never proposed.
    pub in_use: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum NicFabric {
    Ethernet,
    Roce,
    Infiniband,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    pub pci_address: String,
    pub interface: Option<String>,
    pub fabric: NicFabric,
    pub numa_node: Option<u32>,
    pub vfs_total: u32,
    pub vfs: Vec<VirtualFunction>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VirtualFunction {
    pub pci_address: String,
    pub iommu_group: Option<u32>,
    pub driver: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SlotKind {
    Gpu,
    /// A NUMA node of a machine without GPUs.
    Cpu,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateSlot {
    pub slot_index: u32,
    pub kind: SlotKind,
    pub pci_address: Option<String>,
    pub model: String,
    pub iommu_group: Option<u32>,
    /// Stable name of the disk that goes with it.
    pub nvme_device: Option<String>,
    pub numa_node: Option<u32>,
    /// The virtual function that goes with it, on the same NUMA node.
    pub fabric_vf: Option<String>,
    /// Empty when the slot could be sold as it is.
    pub blockers: Vec<Blocker>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocker {
    /// `iommu_disabled`, `iommu_group_shared`, `driver_bound`, `no_fabric_vf`, `no_nvme`, `numa_unknown`, …
    pub code: String,
    /// What it is about: a PCI address, a device, or `node`.
    pub subject: String,
    /// What to do about it.
    pub message: String,
}
