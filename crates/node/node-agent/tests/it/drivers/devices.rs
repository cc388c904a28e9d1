//! Discovery on made-up machines. The expected topologies are in `goldens/`; `UPDATE_GOLDEN=1` writes them.

use std::{collections::BTreeSet, path::Path};

use node_agent::drivers::{DevicesDriver as _, Done, devices::RealDevices};
use node_proto::catalog::{SlotKind, Topology};
use proptest::prelude::*;

use super::{
    Noted,
    tree::{Entry, Pci, Tree},
};

fn discover(tree: &Tree) -> Done<Topology> {
    let written = tree.write();
    RealDevices::new(written.roots()).discover(&Noted::default())
}

fn golden(name: &str, tree: &Tree) -> Topology {
    let topology = discover(tree).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/drivers/goldens/{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(&topology).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, text, "{name} is not as committed; UPDATE_GOLDEN=1 writes it");
    topology
}

fn codes(topology: &Topology, slot: usize) -> Vec<&str> {
    topology.candidates[slot].blockers.iter().map(|blocker| blocker.code.as_str()).collect()
}

/// GPU, fabric card and disk behind one switch each, as in machines of eight.
fn with_switches(
    tree: &mut Tree,
    gpus: u32,
    gpu: (&str, &str, &str),
    driver: Option<&str>,
    link_layer: &str,
    vfs: u32,
) {
    for n in 0..gpus {
        let numa = i32::from(n >= gpus / 2);
        let bus = 0x10 + n * 0x10;
        let parent = format!("pci0000:{bus:02x}/0000:{bus:02x}:01.0");
        tree.pci(&Pci {
            address: &format!("0000:{:02x}:00.0", bus + 1),
            parent: &parent,
            id: gpu,
            numa,
            group: Some(20 + n),
            driver,
        });
        let nic = format!("0000:{:02x}:00.0", bus + 2);
        let id = ("15b3", "1021", if link_layer == "InfiniBand" { "020700" } else { "020000" });
        tree.nic(
            &Pci { address: &nic, parent: &parent, id, numa, group: Some(40 + n), driver: Some("mlx5_core") },
            link_layer,
            vfs,
        );
        tree.nvme(n + 1, &parent, &format!("0000:{:02x}:00.0", bus + 3), numa, Some(60 + n));
    }
}

fn h200() -> Tree {
    let mut tree = Tree::machine(2);
    tree.system_disk();
    with_switches(&mut tree, 8, ("10de", "2335", "030200"), Some("vfio-pci"), "InfiniBand", 2);
    tree
}

#[test]
fn eight_h200_give_eight_slots_each_with_the_nearest_card_and_a_disk_of_its_own() {
    let topology = golden("h200x8", &h200());
    assert_eq!(topology.candidates.len(), 8);
    assert!(topology.blockers.is_empty() && topology.kernel.iommu_enabled);
    for (slot, gpu) in topology.candidates.iter().zip(&topology.gpus) {
        assert!(slot.blockers.is_empty(), "{:?}", slot.blockers);
        assert_eq!((slot.model.as_str(), slot.pci_address.as_ref()), ("H200", Some(&gpu.pci_address)));
        // Bus 0x11 for the GPU, 0x12 for its card.
        let next = |address: &str| u8::from_str_radix(&address[5..7], 16).unwrap();
        assert_eq!(next(&gpu.pci_address) + 1, next(slot.fabric_vf.as_ref().unwrap()));
    }
    let system = topology.block_devices.iter().find(|disk| disk.name == "nvme0n1").unwrap();
    assert!(system.in_use);
    assert!(!topology.kernel.arguments.iter().any(|argument| argument.contains("password")));
}

#[test]
fn mi300x_with_roce() {
    let mut tree = Tree::machine(2);
    tree.system_disk();
    tree.file("proc/cmdline", "root=/dev/x amd_iommu=on iommu=pt default_hugepagesz=1G hugepages=64\n");
    with_switches(&mut tree, 4, ("1002", "74a1", "120000"), Some("vfio-pci"), "Ethernet", 1);
    let topology = golden("mi300x-roce", &tree);
    assert!(topology.candidates.iter().all(|slot| slot.model == "MI300X" && slot.blockers.is_empty()));
}

#[test]
fn without_an_iommu_the_node_and_every_slot_say_so() {
    let mut tree = Tree::machine(1);
    tree.file("proc/cmdline", "root=/dev/x quiet\n");
    for n in 1..=2 {
        let address = format!("0000:{n}1:00.0");
        // On a machine with one NUMA node the kernel often says -1.
        tree.pci(&Pci {
            address: &address,
            parent: "pci0000:00/0000:00:01.0",
            id: ("10de", "2330", "030200"),
            numa: -1,
            group: None,
            driver: None,
        });
    }
    let topology = golden("no-iommu", &tree);
    assert_eq!(topology.blockers[0].code, "iommu_disabled");
    assert_eq!(codes(&topology, 0), ["iommu_disabled", "no_nvme", "no_fabric_vf"]);
    assert_eq!(topology.candidates[0].numa_node, Some(0));
}

#[test]
fn a_gpu_that_the_host_uses_and_cards_without_virtual_functions_are_blockers() {
    let mut tree = Tree::machine(2);
    tree.system_disk();
    with_switches(&mut tree, 2, ("10de", "20b2", "030200"), Some("nvidia"), "InfiniBand", 0);
    let topology = golden("nvidia-bound", &tree);
    assert_eq!(codes(&topology, 0), ["driver_bound", "no_fabric_vf"]);
    assert_eq!(codes(&topology, 1), ["driver_bound", "no_fabric_vf"]);
}

#[test]
fn a_shared_group_is_a_blocker_but_bridges_and_own_functions_are_not() {
    let mut tree = h200();
    let id = ("8086", "1533", "020000");
    tree.pci(&Pci {
        address: "0000:11:1f.0",
        parent: "pci0000:10/0000:10:01.0",
        id,
        numa: 0,
        group: Some(20),
        driver: Some("igb"),
    });
    let id = ("10de", "22ba", "040300");
    tree.pci(&Pci {
        address: "0000:21:00.1",
        parent: "pci0000:20/0000:20:01.0",
        id,
        numa: 0,
        group: Some(21),
        driver: None,
    });
    let id = ("1000", "c030", "060400");
    tree.pci(&Pci {
        address: "0000:20:01.0",
        parent: "pci0000:20",
        id,
        numa: 0,
        group: Some(21),
        driver: Some("pcieport"),
    });
    // An unknown GPU of which nobody knows where it sits.
    let id = ("10de", "ffff", "030200");
    tree.pci(&Pci {
        address: "0000:f1:00.0",
        parent: "pci0000:f0/0000:f0:01.0",
        id,
        numa: -1,
        group: Some(99),
        driver: None,
    });
    let topology = golden("shared-group", &tree);
    assert_eq!(codes(&topology, 0), ["iommu_group_shared"]);
    assert!(topology.candidates[0].blockers[0].message.contains("0000:11:1f.0"));
    assert!(codes(&topology, 1).is_empty());
    assert_eq!(codes(&topology, 8), ["model_unknown", "numa_unknown"]);
}

#[test]
fn a_machine_without_gpus_offers_its_numa_nodes() {
    let mut tree = Tree::machine(2);
    tree.system_disk();
    tree.nvme(1, "pci0000:80/0000:80:01.0", "0000:81:00.0", 1, Some(3));
    // In use by a volume group, without a partition table.
    let held = tree.nvme(2, "pci0000:80/0000:80:02.0", "0000:82:00.0", 0, Some(4));
    tree.link(format!("{held}/holders/dm-0"), "../../dm-0");
    let topology = golden("cpu-only", &tree);
    let kinds: Vec<_> = topology.candidates.iter().map(|slot| (slot.kind, slot.numa_node)).collect();
    assert_eq!(kinds, [(SlotKind::Cpu, Some(0)), (SlotKind::Cpu, Some(1))]);
    assert_eq!(codes(&topology, 0), ["no_nvme"]);
    assert_eq!(topology.candidates[1].nvme_device.as_deref(), Some("nvme-ACME_3840G_S0001"));
    assert!(topology.blockers.is_empty());
}

#[test]
fn one_disk_and_one_function_go_to_one_slot_only() {
    let mut tree = Tree::machine(1);
    tree.nvme(1, "pci0000:00/0000:00:02.0", "0000:03:00.0", 0, Some(3));
    let id = ("15b3", "1021", "020700");
    tree.nic(
        &Pci {
            address: "0000:04:00.0",
            parent: "pci0000:00/0000:00:03.0",
            id,
            numa: 0,
            group: Some(4),
            driver: None,
        },
        "InfiniBand",
        1,
    );
    for n in 1..=3 {
        let address = format!("0000:{n}1:00.0");
        tree.pci(&Pci {
            address: &address,
            parent: "pci0000:00/0000:00:01.0",
            id: ("1002", "740f", "038000"),
            numa: 0,
            group: Some(50 + n),
            driver: None,
        });
    }
    let topology = discover(&tree).unwrap();
    assert!(codes(&topology, 0).is_empty());
    assert_eq!(codes(&topology, 1), ["no_nvme", "no_fabric_vf"]);
    assert_eq!(codes(&topology, 2), ["no_nvme", "no_fabric_vf"]);
}

#[test]
fn swapped_to_and_unreadable_mounts_count_as_in_use() {
    let mut tree = Tree::machine(1);
    tree.nvme(1, "pci0000:00/0000:00:02.0", "0000:03:00.0", 0, Some(3));
    assert!(!discover(&tree).unwrap().block_devices[0].in_use);
    let mut swap = tree.clone();
    swap.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme1n1 partition 1 0 -2\n");
    assert!(discover(&swap).unwrap().block_devices[0].in_use);
    let mut blind = tree.clone();
    blind.entries.remove(Path::new("proc/self/mountinfo"));
    assert!(discover(&blind).unwrap().block_devices[0].in_use);
}

#[test]
fn without_sysfs_there_is_an_error_and_an_empty_one_is_a_machine_that_cannot_be_sold() {
    assert!(discover(&Tree::default()).is_err());
    let mut tree = Tree::default();
    tree.dir("sys");
    let topology = discover(&tree).unwrap();
    assert!(topology.candidates.is_empty() && !topology.blockers.is_empty());
}

#[derive(Clone, Debug)]
enum Damage {
    Gone,
    Garbage(Vec<u8>),
    Huge,
    Loop,
    Elsewhere(&'static str),
    Directory,
    Pipe,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Gone),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Garbage),
        "[-0-9a-fx:,. \n]{0,24}".prop_map(|text| Damage::Garbage(text.into_bytes())),
        Just(Damage::Huge),
        Just(Damage::Loop),
        prop_oneof![Just("/"), Just("/etc/passwd"), Just(".."), Just("."), Just("\u{1F525}")]
            .prop_map(Damage::Elsewhere),
        Just(Damage::Directory),
        Just(Damage::Pipe),
    ]
}

fn small() -> Tree {
    let mut tree = Tree::machine(2);
    tree.system_disk();
    with_switches(&mut tree, 2, ("10de", "2335", "030200"), Some("vfio-pci"), "InfiniBand", 2);
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_tree_gives_blockers_or_errors_and_never_a_panic(
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..24),
    ) {
        let mut tree = small();
        for (index, damage) in damages {
            let path = index.get(&tree.entries.keys().cloned().collect::<Vec<_>>()).clone();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let entry = match damage {
                Damage::Gone => { tree.entries.remove(&path); continue }
                Damage::Garbage(bytes) => Entry::File(bytes),
                Damage::Huge => Entry::File(vec![b'7'; 300_000]),
                Damage::Loop => Entry::Link(name),
                Damage::Elsewhere(target) => Entry::Link(target.to_owned()),
                Damage::Directory => Entry::Dir,
                Damage::Pipe => Entry::Pipe,
            };
            tree.entries.insert(path, entry);
        }
        if let Ok(topology) = discover(&tree) {
            let (mut disks, mut functions) = (BTreeSet::new(), BTreeSet::new());
            for slot in &topology.candidates {
                prop_assert!(slot.nvme_device.as_ref().is_none_or(|disk| disks.insert(disk.clone())));
                prop_assert!(slot.fabric_vf.as_ref().is_none_or(|vf| functions.insert(vf.clone())));
                let complete = slot.nvme_device.is_some() && slot.numa_node.is_some();
                prop_assert!(complete || !slot.blockers.is_empty());
                // The disk that the machine runs from is never offered.
                prop_assert!(slot.nvme_device.as_deref() != Some("nvme-ACME_3840G_S0000") || !tree_runs_from_it(&tree));
            }
            serde_json::to_string(&topology).unwrap();
        }
    }
}

/// Whether the damage left the facts that tell that the disk is in use: its partitions.
fn tree_runs_from_it(tree: &Tree) -> bool {
    let parts = tree.entries.keys().filter(|path| path.to_string_lossy().contains("/nvme0n1/nvme0n1p"));
    parts.count() > 0
}
