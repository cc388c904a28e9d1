//! Every profile is a machine that could serve as it is.

use std::{collections::BTreeSet, sync::Mutex};

use kernel::Ambient;
use node_agent::drivers::{
    Done, Drivers, Steps,
    simulated::{Machine, Profile},
};
use node_proto::{
    catalog::{
        AccountSpec, CollectInput, CollectPart, DeprovisionUserInput, GpuVendor, HealthProbeInput,
        InstallAuthorizedKeysInput, Isolation, NicFabric, ProbeProfile, ProvisionUserInput, SlotKind,
        TaskType, Topology,
    },
    contract::{FailureCode, Finding},
};

#[derive(Default)]
struct Seen(Mutex<Vec<&'static str>>);

impl Steps for Seen {
    fn begin(&self, phase: &'static str) -> Done<()> {
        self.0.lock().unwrap().push(phase);
        Ok(())
    }
}

fn drivers(profile: Profile) -> Drivers {
    Machine::new(profile, format!("sim-{profile}-1"), 1, Ambient::system()).drivers()
}

fn topology(profile: Profile) -> Topology {
    drivers(profile).devices.discover(&Seen::default()).unwrap()
}

#[test]
fn every_profile_is_ready_to_serve() {
    for &profile in Profile::ALL {
        let found = topology(profile);
        assert!(found.blockers.is_empty() && found.kernel.iommu_enabled, "{profile}");
        assert_eq!(found.gpus.len(), profile.gpus() as usize, "{profile}");
        assert_eq!(found.numa_nodes.len(), 2);
        assert_eq!(found.numa_nodes.iter().map(|n| n.memory_mib).sum::<u64>(), found.memory_mib);
        assert_eq!(found.candidates.len(), if profile.gpus() == 0 { 2 } else { 8 }, "{profile}");
        for (index, slot) in (0..).zip(&found.candidates) {
            assert_eq!(slot.slot_index, index);
            assert!(slot.blockers.is_empty() && slot.nvme_device.is_some() && slot.numa_node.is_some());
        }
    }
}

#[test]
fn a_slot_has_devices_of_its_own_on_one_numa_node() {
    for profile in [Profile::H200x8, Profile::H100x8, Profile::Mi300xX8] {
        let found = topology(profile);
        let mut taken = BTreeSet::new();
        for slot in &found.candidates {
            assert_eq!(slot.kind, SlotKind::Gpu);
            let gpu =
                found.gpus.iter().find(|gpu| Some(&gpu.pci_address) == slot.pci_address.as_ref()).unwrap();
            assert_eq!((gpu.numa_node, gpu.iommu_group), (slot.numa_node, slot.iommu_group));
            assert_eq!(gpu.iommu_group_members, std::slice::from_ref(&gpu.pci_address));
            let disk = found.block_devices.iter().find(|disk| disk.by_id == slot.nvme_device).unwrap();
            assert!(!disk.in_use && disk.numa_node == slot.numa_node);
            let vf = slot.fabric_vf.clone().unwrap();
            let nic = found.nics.iter().find(|nic| nic.vfs.iter().any(|v| v.pci_address == vf)).unwrap();
            assert_eq!(nic.numa_node, slot.numa_node);
            for device in [gpu.pci_address.clone(), disk.name.clone(), vf, nic.pci_address.clone()] {
                assert!(taken.insert(device.clone()), "{profile}: {device} is used twice");
            }
        }
        let addresses: Vec<_> = found.candidates.iter().filter_map(|slot| slot.pci_address.clone()).collect();
        assert!(addresses.is_sorted());
    }
}

#[test]
fn vendors_and_fabrics_are_those_of_the_profile() {
    let mi300x = topology(Profile::Mi300xX8);
    assert!(mi300x.gpus.iter().all(|gpu| gpu.vendor == GpuVendor::Amd && gpu.device_id == "74a1"));
    assert_eq!(mi300x.nics.iter().filter(|nic| nic.fabric == NicFabric::Roce).count(), 8);
    let h200 = topology(Profile::H200x8);
    assert!(h200.gpus.iter().all(|gpu| gpu.vendor == GpuVendor::Nvidia && gpu.model == "H200"));
    assert_eq!(h200.nics.iter().filter(|nic| nic.fabric == NicFabric::Infiniband).count(), 8);
    assert!(topology(Profile::Cpu).candidates.iter().all(|slot| slot.kind == SlotKind::Cpu));
    // What is sold is matched by the short names of the table of devices, on slots as on GPUs.
    let names = [
        (Profile::H200x8, "H200"),
        (Profile::H100x8, "H100"),
        (Profile::Mi300xX8, "MI300X"),
        (Profile::Cpu, ""),
    ];
    for (profile, name) in names {
        let found = topology(profile);
        assert!(found.candidates.iter().all(|slot| slot.model == name), "{profile}");
        assert!(found.gpus.iter().all(|gpu| gpu.model == name), "{profile}");
    }
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse::<Profile>(), Ok(*profile));
    }
    assert!("abacus".parse::<Profile>().is_err());
}

#[test]
fn a_machine_is_the_same_at_every_look_and_unlike_its_neighbours() {
    let machine = |number| Machine::new(Profile::H200x8, "sim", number, Ambient::system()).drivers();
    let look = |number| machine(number).devices.discover(&Seen::default()).unwrap();
    assert_eq!(look(1), look(1));
    assert_ne!(look(1).block_devices, look(2).block_devices);
    assert_ne!(machine(1).power.boot_id(), machine(2).power.boot_id());
}

#[test]
fn probes_readings_and_metrics_speak_of_the_same_gpus() {
    for &profile in Profile::ALL {
        let drivers = drivers(profile);
        let input = |expected_gpus| HealthProbeInput { profile: ProbeProfile::Onboarding, expected_gpus };
        let report = drivers.diag.probe(&input(profile.gpus()), &Seen::default()).unwrap();
        assert!(report.passed, "{profile}: {:?}", report.checks);
        assert!(!drivers.diag.probe(&input(profile.gpus() + 1), &Seen::default()).unwrap().passed);
        let of = |addresses: Vec<String>| addresses.into_iter().collect::<BTreeSet<_>>();
        let readings = drivers.gpu.readings().unwrap();
        let addresses = of(readings.into_iter().map(|gpu| gpu.pci_address).collect());
        assert_eq!(
            addresses,
            of(drivers.diag.metrics().gpus.into_iter().map(|gpu| gpu.pci_address).collect())
        );
        assert_eq!(addresses, of(topology(profile).gpus.into_iter().map(|gpu| gpu.pci_address).collect()));
    }
}

#[test]
fn accounts_are_checked_kept_and_removed() {
    let drivers = drivers(Profile::Cpu);
    let account = AccountSpec { username: "alice".to_owned(), uid: 20_001, gid: 20_001 };
    let owner = "allocation_1".to_owned();
    let input = ProvisionUserInput {
        account: account.clone(),
        owner: owner.clone(),
        shell: "/bin/bash".to_owned(),
        authorized_keys: vec!["ssh-ed25519 AAAA a".to_owned()],
        limits: Default::default(),
        isolation: Isolation::FullReimage,
    };
    let steps = Seen::default();
    assert!(drivers.host.provision_user(&input, &steps).unwrap().created);
    assert_eq!(*steps.0.lock().unwrap(), TaskType::ProvisionUser.phases());
    assert!(!drivers.host.provision_user(&input, &Seen::default()).unwrap().created);
    let other = AccountSpec { username: "bob".to_owned(), ..account.clone() };
    let clash = drivers
        .host
        .provision_user(&ProvisionUserInput { account: other, ..input.clone() }, &Seen::default());
    assert_eq!(clash.unwrap_err().code, FailureCode::Invalid);
    let root = AccountSpec { username: "root".to_owned(), uid: 0, gid: 0 };
    assert!(
        drivers
            .host
            .provision_user(&ProvisionUserInput { account: root, ..input.clone() }, &Seen::default())
            .is_err()
    );

    let keys = InstallAuthorizedKeysInput {
        account: account.clone(),
        owner: owner.clone(),
        authorized_keys: vec![],
    };
    assert!(drivers.host.install_keys(&keys, &Seen::default()).unwrap().changed);
    assert!(!drivers.host.install_keys(&keys, &Seen::default()).unwrap().changed);
    assert_eq!(drivers.host.users().unwrap(), ["alice"]);

    let gone = DeprovisionUserInput { account, owner };
    let steps = Seen::default();
    assert!(drivers.host.deprovision_user(&gone, &steps).unwrap().account_removed);
    assert_eq!(*steps.0.lock().unwrap(), TaskType::DeprovisionUser.phases());
    assert!(!drivers.host.deprovision_user(&gone, &Seen::default()).unwrap().account_removed);
    assert!(drivers.host.users().unwrap().is_empty());
}

#[test]
fn what_happens_to_a_machine_shows() {
    let machine = Machine::new(Profile::H100x8, "sim", 1, Ambient::system());
    let drivers = machine.drivers();
    let boot = drivers.power.boot_id();
    drivers.power.reboot("test").unwrap();
    assert_ne!(drivers.power.boot_id(), boot);
    machine.fill_disk(true);
    assert_eq!(drivers.diag.metrics().state_disk_free_mib, 0);
    assert_eq!(drivers.findings()[0].code, "node.disk_full");
    machine.suffer(Finding {
        code: "xid.79".to_owned(),
        subject: "0000:1b:00.0".to_owned(),
        message: "fell off the bus".to_owned(),
        observed_at: Ambient::system().now(),
        evidence: serde_json::Value::Null,
    });
    assert_eq!(drivers.gpu.findings().unwrap().len(), 1);
    assert!(drivers.gpu.findings().unwrap().is_empty());
    let parts = vec![CollectPart::KernelLog, CollectPart::Memory];
    let collected = drivers.diag.collect(&CollectInput { parts: parts.clone() }, &Seen::default()).unwrap();
    assert_eq!(collected.parts.iter().map(|part| part.part).collect::<Vec<_>>(), parts);
}
