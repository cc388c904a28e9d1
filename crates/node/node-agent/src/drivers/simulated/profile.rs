//! The kinds of machines that can be simulated, as data.

use node_proto::catalog::{GpuVendor, NicFabric};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// 8 × NVIDIA H200 SXM, InfiniBand with virtual functions.
    H200x8,
    /// 8 × NVIDIA H100 SXM, InfiniBand with virtual functions.
    H100x8,
    /// 8 × AMD MI300X, RoCE with virtual functions.
    Mi300xX8,
    /// No GPUs.
    Cpu,
}

/// What a profile is made of.
pub(super) struct Parts {
    pub gpu: Option<GpuParts>,
    pub fabric: NicFabric,
    pub cpus: u32,
    pub memory_mib: u64,
    pub kernel: &'static str,
    pub arguments: &'static [&'static str],
    /// By NUMA node, as the kernel writes it.
    pub cpu_lists: [&'static str; 2],
}

pub(super) struct GpuParts {
    pub vendor: GpuVendor,
    pub device_id: &'static str,
    /// As its tools name it; discovery names it by the table of devices.
    pub marketed_as: &'static str,
    pub memory_mib: u64,
    pub driver_version: &'static str,
    /// The bus of each; the first half is on NUMA node 0, the other on node 1.
    pub buses: [u8; 8],
}

const NVIDIA_BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];
const AMD_BUSES: [u8; 8] = [0x05, 0x26, 0x46, 0x65, 0x85, 0xa6, 0xc6, 0xe5];

impl Profile {
    pub const ALL: &'static [Self] = &[Self::H200x8, Self::H100x8, Self::Mi300xX8, Self::Cpu];

    pub const fn name(self) -> &'static str {
        match self {
            Self::H200x8 => "h200-8",
            Self::H100x8 => "h100-8",
            Self::Mi300xX8 => "mi300x-8",
            Self::Cpu => "cpu",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|profile| profile.name() == name)
    }

    pub const fn gpus(self) -> u32 {
        match self {
            Self::Cpu => 0,
            _ => 8,
        }
    }

    pub(super) fn parts(self) -> Parts {
        let nvidia = |device_id, marketed_as, memory_mib| GpuParts {
            vendor: GpuVendor::Nvidia,
            device_id,
            marketed_as,
            memory_mib,
            driver_version: "570.133.20",
            buses: NVIDIA_BUSES,
        };
        let intel = |gpu| Parts {
            gpu: Some(gpu),
            fabric: NicFabric::Infiniband,
            cpus: 192,
            memory_mib: 2_064_384,
            kernel: "6.8.0-60-generic",
            arguments: &["intel_iommu=on", "iommu=pt", "default_hugepagesz=1G"],
            cpu_lists: ["0-47,96-143", "48-95,144-191"],
        };
        let amd = |gpu, fabric, memory_mib| Parts {
            gpu,
            fabric,
            cpus: 256,
            memory_mib,
            kernel: "6.8.0-60-generic",
            arguments: &["amd_iommu=on", "iommu=pt", "default_hugepagesz=1G"],
            cpu_lists: ["0-63,128-191", "64-127,192-255"],
        };
        match self {
            Self::H200x8 => intel(nvidia("2335", "NVIDIA H200", 143_771)),
            Self::H100x8 => intel(nvidia("2330", "NVIDIA H100 80GB HBM3", 81_559)),
            Self::Mi300xX8 => amd(
                Some(GpuParts {
                    vendor: GpuVendor::Amd,
                    device_id: "74a1",
                    marketed_as: "AMD Instinct MI300X",
                    memory_mib: 196_592,
                    driver_version: "6.12.12",
                    buses: AMD_BUSES,
                }),
                NicFabric::Roce,
                2_321_408,
            ),
            Self::Cpu => amd(None, NicFabric::Ethernet, 1_547_264),
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::parse(name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|profile| profile.name()).collect();
            format!("{name:?} is not a profile; choose one of {}", known.join(", "))
        })
    }
}
