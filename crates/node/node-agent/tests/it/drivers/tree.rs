//! Builds `/sys`, `/proc` and `/dev` of machines that we do not have, as plain files and links.

use std::{
    collections::BTreeMap,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use node_agent::config::Roots;

#[derive(Clone, Debug)]
pub enum Entry {
    Dir,
    File(Vec<u8>),
    Link(String),
    Pipe,
}

/// A tree in memory, so that it can be damaged before it is written.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub entries: BTreeMap<PathBuf, Entry>,
}

pub struct Pci<'a> {
    pub address: &'a str,
    /// The path below `/sys/devices` that it hangs on.
    pub parent: &'a str,
    /// Vendor, device and class in hex.
    pub id: (&'a str, &'a str, &'a str),
    pub numa: i32,
    pub group: Option<u32>,
    pub driver: Option<&'a str>,
}

impl Tree {
    pub fn file(&mut self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        self.entries.insert(path.as_ref().into(), Entry::File(content.as_ref().to_vec()));
    }

    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<String>) {
        self.entries.insert(path.as_ref().into(), Entry::Link(target.into()));
    }

    pub fn dir(&mut self, path: impl AsRef<Path>) {
        self.entries.insert(path.as_ref().into(), Entry::Dir);
    }

    /// A machine with so many NUMA nodes of 48 processors and 512 GiB.
    pub fn machine(nodes: u32) -> Self {
        let mut tree = Self::default();
        tree.file("proc/sys/kernel/hostname", "gpu-01\n");
        tree.file("proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
        tree.file("proc/sys/kernel/tainted", "12288\n");
        tree.file("proc/sys/kernel/random/boot_id", "6f3c0f4e-8a4c-4d0e-9f0a-000000000001\n");
        tree.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro intel_iommu=on iommu=pt vfio-pci.ids=10de:2335 quiet password=hunter2\n");
        tree.file("proc/loadavg", "1.25 0.80 0.50 2/900 12345\n");
        tree.file("proc/uptime", "1000.50 90000.00\n");
        tree.file("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        let total = u64::from(nodes) * 512 * 1024 * 1024;
        tree.file(
            "proc/meminfo",
            format!("MemTotal:       {total} kB\nMemFree: 1 kB\nMemAvailable:   {} kB\n", total / 4 * 3),
        );
        tree.file(
            "proc/self/mountinfo",
            "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n23 22 0:5 / /dev rw - devtmpfs udev rw\n",
        );
        tree.file("sys/devices/system/cpu/online", format!("0-{}\n", nodes * 48 - 1));
        for node in 0..nodes {
            let dir = format!("sys/devices/system/node/node{node}");
            tree.file(format!("{dir}/cpulist"), format!("{}-{}\n", node * 48, node * 48 + 47));
            tree.file(
                format!("{dir}/meminfo"),
                format!("Node {node} MemTotal:       536870912 kB\nNode {node} MemFree: 1 kB\n"),
            );
        }
        tree.file("sys/devices/system/node/online", "0-1\n");
        tree.dir("sys/bus/pci/devices");
        tree.dir("sys/block");
        tree
    }

    pub fn pci(&mut self, pci: &Pci<'_>) -> String {
        let dir = format!("sys/devices/{}/{}", pci.parent, pci.address);
        let (vendor, device, class) = pci.id;
        self.file(format!("{dir}/vendor"), format!("0x{vendor}\n"));
        self.file(format!("{dir}/device"), format!("0x{device}\n"));
        self.file(format!("{dir}/class"), format!("0x{class}\n"));
        self.file(format!("{dir}/numa_node"), format!("{}\n", pci.numa));
        let up = "../".repeat(dir.split('/').count() - 1);
        if let Some(group) = pci.group {
            self.link(format!("{dir}/iommu_group"), format!("{up}kernel/iommu_groups/{group}"));
            self.link(
                format!("sys/kernel/iommu_groups/{group}/devices/{}", pci.address),
                format!("../../../../{}", &dir[4..]),
            );
        }
        if let Some(driver) = pci.driver {
            self.link(format!("{dir}/driver"), format!("{up}bus/pci/drivers/{driver}"));
        }
        self.link(format!("sys/bus/pci/devices/{}", pci.address), format!("../../../{}", &dir[4..]));
        dir
    }

    /// A fabric card with so many virtual functions, which follow it on the bus.
    pub fn nic(&mut self, pci: &Pci<'_>, link_layer: &str, vfs: u32) {
        let dir = self.pci(pci);
        let bus = &pci.address[..8];
        self.file(
            format!("{dir}/infiniband/mlx5_{}/ports/1/link_layer", &bus[5..7]),
            format!("{link_layer}\n"),
        );
        self.dir(format!("{dir}/net/ens{}", &bus[5..7]));
        self.file(format!("{dir}/sriov_totalvfs"), "16\n");
        for vf in 0..vfs {
            let address = format!("{bus}00.{}", vf + 1);
            let group = pci.group.map(|group| group * 10 + vf + 1000);
            let vf_dir = self.pci(&Pci {
                address: &address,
                group,
                driver: None,
                id: ("15b3", "101e", "020000"),
                ..*pci
            });
            self.link(format!("{vf_dir}/physfn"), format!("../{}", pci.address));
            self.link(format!("{dir}/virtfn{vf}"), format!("../{address}"));
        }
    }

    /// The disk `nvme<n>n1` on a controller of its own.
    pub fn nvme(
        &mut self,
        number: u32,
        parent: &str,
        address: &str,
        numa: i32,
        group: Option<u32>,
    ) -> String {
        let id = ("144d", "a80a", "010802");
        let controller = self.pci(&Pci { address, parent, id, numa, group, driver: Some("nvme") });
        let disk = format!("{controller}/nvme/nvme{number}/nvme{number}n1");
        self.file(format!("{disk}/size"), "7501476528\n");
        self.file(format!("{disk}/dev"), format!("259:{}\n", number * 10));
        self.dir(format!("{disk}/holders"));
        self.link(format!("sys/block/nvme{number}n1"), format!("../{}", &disk[4..]));
        self.link(
            format!("dev/disk/by-id/nvme-eui.00000000000000{number:02}"),
            format!("../../nvme{number}n1"),
        );
        self.link(format!("dev/disk/by-id/nvme-ACME_3840G_S{number:04}"), format!("../../nvme{number}n1"));
        disk
    }

    /// `nvme0n1` as the disk that the machine runs from.
    pub fn system_disk(&mut self) {
        let disk = self.nvme(0, "pci0000:00/0000:00:1d.0", "0000:02:00.0", 0, Some(2));
        for part in 1..=2 {
            self.file(format!("{disk}/nvme0n1p{part}/partition"), format!("{part}\n"));
            self.file(format!("{disk}/nvme0n1p{part}/dev"), format!("259:{part}\n"));
            self.link(
                format!("dev/disk/by-id/nvme-ACME_3840G_S0000-part{part}"),
                format!("../../nvme0n1p{part}"),
            );
        }
    }

    pub fn write(&self) -> Written {
        // Hundreds of small files: in memory, where that is to be had.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for (path, entry) in &self.entries {
            let path = dir.path().join(path);
            // What was damaged may be in the way of what is below it.
            let _ = std::fs::create_dir_all(path.parent().unwrap());
            let _ = match entry {
                Entry::Dir => std::fs::create_dir_all(&path),
                Entry::File(content) => std::fs::write(&path, content),
                Entry::Link(target) => symlink(target, &path),
                Entry::Pipe => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RWXU,
                    0,
                )
                .map_err(Into::into),
            };
        }
        Written { dir }
    }
}

/// A tree on disk, removed with it.
pub struct Written {
    pub dir: tempfile::TempDir,
}

impl Written {
    pub fn roots(&self) -> Roots {
        Roots::below(self.dir.path())
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// A program in the tree.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}
