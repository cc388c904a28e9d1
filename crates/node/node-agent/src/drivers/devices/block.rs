//! NVMe disks, and whether anything uses them. A disk counts as used unless it is plainly not.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use node_proto::catalog::BlockDevice;

use super::tree;
use crate::{config::Roots, drivers::files::read_bounded};

const DISKS_AT_MOST: usize = 1024;
const TABLE_BYTES: usize = 4 * 1024 * 1024;
const SECTOR_BYTES: u64 = 512;

pub fn disks(roots: &Roots, only_node: Option<u32>) -> Vec<BlockDevice> {
    let used = Used::read(&roots.proc);
    let stable = stable_names(&roots.dev);
    let dir = roots.sysfs.join("block");
    let names = tree::names(&dir).into_iter().filter(|name| is_namespace(name)).take(DISKS_AT_MOST);
    let mut disks: Vec<_> = names
        .map(|name| {
            let disk = dir.join(&name);
            BlockDevice {
                by_id: stable.get(&name).cloned(),
                size_bytes: tree::number::<u64>(&disk.join("size")).unwrap_or(0).saturating_mul(SECTOR_BYTES),
                numa_node: node(&roots.sysfs, &disk).or(only_node),
                in_use: used.disk(&disk, &name),
                name,
            }
        })
        .collect();
    disks.sort_by_key(|disk| numbers(&disk.name));
    disks
}

/// `nvme0n1`, and neither a partition nor a hidden path of a shared one (`nvme0c0n1`).
fn is_namespace(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'))
        .is_some_and(|(a, b)| digits(a) && digits(b))
}

fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The NUMA node of the nearest PCI function above the disk, or of a controller that leads to it.
fn node(sysfs: &Path, disk: &Path) -> Option<u32> {
    let real = tree::real(sysfs, disk)?;
    let node = |function: &Path| {
        let node: i64 = tree::number(&function.join("numa_node"))?;
        u32::try_from(node).ok()
    };
    let is_function =
        |path: &&Path| path.file_name().and_then(|name| name.to_str()).is_some_and(tree::is_pci_address);
    if let Some(function) = real.ancestors().find(is_function) {
        return node(function);
    }
    // Shared namespaces hang below a subsystem, which links to its controllers.
    let subsystem = real.parent()?;
    tree::names(subsystem).into_iter().filter(|name| name.starts_with("nvme")).find_map(|controller| {
        let address = tree::text(&subsystem.join(controller).join("address"))?;
        tree::is_pci_address(&address).then(|| node(&sysfs.join("bus/pci/devices").join(address))).flatten()
    })
}

/// The stable name of each disk. Where there are several, those that say what the disk is are preferred to bare
/// numbers, and short ones to long ones.
fn stable_names(dev: &Path) -> BTreeMap<String, String> {
    let dir = dev.join("disk/by-id");
    let mut best: BTreeMap<String, ((bool, usize), String)> = BTreeMap::new();
    for name in tree::names(&dir) {
        let Some(rest) = name.strip_prefix("nvme-") else { continue };
        let Some(disk) = tree::link_name(&dir.join(&name)).filter(|disk| is_namespace(disk)) else {
            continue;
        };
        let rank =
            (rest.starts_with("eui.") || rest.starts_with("nvme.") || rest.starts_with("uuid."), name.len());
        let known = best.get(&disk).is_some_and(|(other, _)| *other <= rank);
        if !known {
            best.insert(disk, (rank, name));
        }
    }
    best.into_iter().map(|(disk, (_, name))| (disk, name)).collect()
}

/// What is mounted or swapped to: device numbers and names.
struct Used {
    numbers: BTreeSet<String>,
    names: BTreeSet<String>,
    /// The mount table could not be read, so everything may be in use.
    unknown: bool,
}

impl Used {
    fn read(proc: &Path) -> Self {
        let table = |file: &str| {
            let (bytes, more) = read_bounded(&proc.join(file), TABLE_BYTES).ok()?;
            (!more).then(|| String::from_utf8_lossy(&bytes).into_owned())
        };
        let mounts = table("self/mountinfo").filter(|text| !text.trim().is_empty());
        let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
        let name = |source: &str| source.strip_prefix("/dev/").map(str::to_owned);
        for line in mounts.as_deref().unwrap_or_default().lines() {
            numbers.extend(line.split(' ').nth(2).map(str::to_owned));
            let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
            names.extend(source.and_then(name));
        }
        for line in table("swaps").unwrap_or_default().lines().skip(1) {
            names.extend(line.split_whitespace().next().and_then(name));
        }
        Self { numbers, names, unknown: mounts.is_none() }
    }

    fn disk(&self, dir: &Path, name: &str) -> bool {
        let held = |dir: &Path| !tree::names(&dir.join("holders")).is_empty();
        let numbered = tree::text(&dir.join("dev")).is_none_or(|number| self.numbers.contains(&number));
        let parts = tree::names(dir).into_iter().any(|entry| {
            entry.strip_prefix(name).is_some_and(|rest| rest.starts_with('p')) && dir.join(entry).is_dir()
        });
        // A partition table means that somebody put something there.
        self.unknown || held(dir) || numbered || parts || self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_told_from_partitions_and_paths() {
        assert!(is_namespace("nvme0n1") && is_namespace("nvme12n34"));
        assert!(
            ["nvme0n1p1", "nvme0c0n1", "nvme0", "sda", "nvmen1", "nvme0n"].iter().all(|n| !is_namespace(n))
        );
    }
}
