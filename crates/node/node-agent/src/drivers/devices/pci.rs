//! PCI functions: which there are, where they sit, who holds them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use node_proto::catalog::{Blocker, Gpu, GpuVendor, Nic, NicFabric, VirtualFunction};

use super::{blocker, models, tree};

const FUNCTIONS_AT_MOST: usize = 8192;
const VFS_AT_MOST: usize = 256;
/// Functions that cannot be read are named one by one up to here.
const UNREADABLE_AT_MOST: usize = 16;

/// One function as its directory shows it.
pub struct Function {
    pub address: String,
    vendor: String,
    device: String,
    class: String,
    pub numa_node: Option<u32>,
    pub iommu_group: Option<u32>,
    pub driver: Option<String>,
    is_virtual: bool,
    dir: PathBuf,
    /// Where it hangs: the directories from the root complex down.
    pub path: PathBuf,
}

impl Function {
    pub fn is_bridge(&self) -> bool {
        self.class.starts_with("06")
    }

    fn gpu_vendor(&self) -> Option<GpuVendor> {
        let display = ["0300", "0302", "0380", "1200"].iter().any(|class| self.class.starts_with(class));
        match (self.vendor.as_str(), display && !self.is_virtual) {
            ("10de", true) => Some(GpuVendor::Nvidia),
            ("1002", true) => Some(GpuVendor::Amd),
            _ => None,
        }
    }

    fn is_nic(&self) -> bool {
        (self.class.starts_with("0200") || self.class.starts_with("0207")) && !self.is_virtual
    }
}

pub struct Bus {
    pub functions: BTreeMap<String, Function>,
    /// Members of each IOMMU group, as the kernel lists them.
    groups: BTreeMap<u32, Vec<String>>,
}

impl Bus {
    /// Reads every function. `only_node` is the NUMA node of a machine that has just one: there, the kernel
    /// often does not say.
    pub fn read(sysfs: &Path, only_node: Option<u32>, blockers: &mut Vec<Blocker>) -> Self {
        let mut functions = BTreeMap::new();
        let mut unreadable = 0_usize;
        let devices = sysfs.join("bus/pci/devices");
        for address in tree::names(&devices).into_iter().take(FUNCTIONS_AT_MOST) {
            if !tree::is_pci_address(&address) {
                continue;
            }
            match function(sysfs, &devices.join(&address), &address, only_node) {
                Some(function) => drop(functions.insert(address, function)),
                None => {
                    unreadable += 1;
                    if unreadable <= UNREADABLE_AT_MOST {
                        let message = "The kernel does not say what this function is. Look at the kernel log; reseat or disable the device.";
                        blockers.push(blocker("pci_unreadable", &address, message));
                    }
                }
            }
        }
        let groups = sysfs.join("kernel/iommu_groups");
        let groups = tree::names(&groups)
            .into_iter()
            .filter_map(|name| Some((name.parse().ok()?, tree::names(&groups.join(name).join("devices")))))
            .collect();
        Self { functions, groups }
    }

    pub fn iommu_enabled(&self) -> bool {
        self.groups.values().any(|members| !members.is_empty())
    }

    pub fn gpus(&self) -> Vec<Gpu> {
        let gpu = |function: &Function| {
            let vendor = function.gpu_vendor()?;
            Some(Gpu {
                pci_address: function.address.clone(),
                vendor,
                device_id: function.device.clone(),
                model: models::model(vendor, &function.device).to_owned(),
                numa_node: function.numa_node,
                iommu_group: function.iommu_group,
                iommu_group_members: self.members(function.iommu_group).to_vec(),
                driver: function.driver.clone(),
            })
        };
        self.functions.values().filter_map(gpu).collect()
    }

    pub fn members(&self, group: Option<u32>) -> &[String] {
        group.and_then(|group| self.groups.get(&group)).map_or(&[], Vec::as_slice)
    }

    /// Members of the group that are neither functions of the same device nor bridges.
    pub fn strangers(&self, address: &str, group: Option<u32>) -> Vec<&str> {
        let device = |address: &str| address.rsplit_once('.').map(|(device, _)| device.to_owned());
        let own = device(address);
        let members = self.members(group).iter().map(String::as_str);
        members
            .filter(|member| device(member) != own)
            .filter(|member| !self.functions.get(*member).is_some_and(Function::is_bridge))
            .collect()
    }

    pub fn nics(&self) -> Vec<Nic> {
        let nic = |function: &Function| Nic {
            pci_address: function.address.clone(),
            interface: tree::names(&function.dir.join("net")).into_iter().next(),
            fabric: fabric(function),
            numa_node: function.numa_node,
            vfs_total: tree::number(&function.dir.join("sriov_totalvfs")).unwrap_or(0),
            vfs: self.virtual_functions(function),
        };
        self.functions.values().filter(|function| function.is_nic()).map(nic).collect()
    }

    fn virtual_functions(&self, physical: &Function) -> Vec<VirtualFunction> {
        let mut numbered: Vec<(u32, String)> = tree::names(&physical.dir)
            .into_iter()
            .filter_map(|name| {
                let number = name.strip_prefix("virtfn")?.parse().ok()?;
                let address = tree::link_name(&physical.dir.join(&name))?;
                tree::is_pci_address(&address).then_some((number, address))
            })
            .collect();
        numbered.sort_unstable();
        numbered.dedup_by(|a, b| a.1 == b.1);
        let described = numbered.into_iter().take(VFS_AT_MOST).filter_map(|(_, address)| {
            let function = self.functions.get(&address)?;
            Some(VirtualFunction {
                pci_address: address,
                iommu_group: function.iommu_group,
                driver: function.driver.clone(),
            })
        });
        described.collect()
    }
}

fn function(sysfs: &Path, dir: &Path, address: &str, only_node: Option<u32>) -> Option<Function> {
    let node: Option<i64> = tree::number(&dir.join("numa_node"));
    Some(Function {
        address: address.to_owned(),
        vendor: tree::hex(&dir.join("vendor"), 4)?,
        device: tree::hex(&dir.join("device"), 4)?,
        class: tree::hex(&dir.join("class"), 6)?,
        numa_node: node.and_then(|node| u32::try_from(node).ok()).or(only_node),
        iommu_group: tree::link_name(&dir.join("iommu_group")).and_then(|name| name.parse().ok()),
        driver: tree::link_name(&dir.join("driver")),
        is_virtual: std::fs::symlink_metadata(dir.join("physfn")).is_ok(),
        dir: dir.to_owned(),
        path: tree::real(sysfs, dir)?,
    })
}

fn fabric(function: &Function) -> NicFabric {
    let devices = function.dir.join("infiniband");
    for device in tree::names(&devices) {
        let ports = devices.join(device).join("ports");
        for port in tree::names(&ports) {
            match tree::text(&ports.join(port).join("link_layer")).as_deref() {
                Some("InfiniBand") => return NicFabric::Infiniband,
                Some("Ethernet") => return NicFabric::Roce,
                _ => {}
            }
        }
    }
    if function.class.starts_with("0207") { NicFabric::Infiniband } else { NicFabric::Ethernet }
}
