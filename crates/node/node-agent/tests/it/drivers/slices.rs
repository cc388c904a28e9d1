//! Slices over leases in files and a simulated hypervisor: every step is stopped, repeated and taken back.

use std::path::Path;

use kernel::Ambient;
use node_agent::{
    config::Config,
    drivers::{
        DevicesDriver as _, DriverError,
        hypervisor::{FileLeases, Hypervisor as _, Slices},
        real,
        simulated::{Machine, Profile},
    },
};
use node_proto::{
    TaskType,
    catalog::{
        ReleasedVm, SlotDevices, VmAuthorizedKeysInput, VmProvisionInput, VmReleaseInput, VmRestartInput,
    },
    contract::FailureCode,
};

use super::Noted;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rbtDqO3zIp0Oj7bF2e5rWzNwyXcOkRmDqSbfGUpt9 someone@home";

struct Host {
    machine: Machine,
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let machine = Machine::new(Profile::H200x8, "sim-h200", 1, Ambient::system());
        Self { machine, dir: tempfile::tempdir().unwrap() }
    }

    /// An agent that has just started: it knows what is on the machine and in the files, and nothing else.
    fn agent(&self) -> Slices {
        Slices::new(Box::new(self.machine.clone()), Box::new(FileLeases::new(self.dir.path())))
    }

    fn slots(&self, indexes: &[u32]) -> Vec<SlotDevices> {
        let found = self.machine.discover(&Noted::default()).unwrap();
        let slot = |index: &u32| {
            let slot = found.candidates[*index as usize].clone();
            SlotDevices {
                slot_index: slot.slot_index,
                pci_address: slot.pci_address,
                nvme_device: slot.nvme_device,
                fabric_vf: slot.fabric_vf,
                numa_node: slot.numa_node,
            }
        };
        indexes.iter().map(slot).collect()
    }

    fn wanted(&self, owner: &str, indexes: &[u32]) -> VmProvisionInput {
        VmProvisionInput {
            owner: owner.to_owned(),
            slots: self.slots(indexes),
            vcpus: 24,
            memory_mib: 65_536,
            image: "ubuntu-24.04".to_owned(),
            username: "alice".to_owned(),
            authorized_keys: vec![KEY.to_owned()],
        }
    }

    fn release(&self, owner: &str, indexes: &[u32]) -> Result<ReleasedVm, DriverError> {
        let input = VmReleaseInput { owner: owner.to_owned(), slots: self.slots(indexes) };
        self.agent().release(&input, &Noted::default())
    }

    fn provision(&self, owner: &str, indexes: &[u32]) -> Result<bool, DriverError> {
        let made = self.agent().provision(&self.wanted(owner, indexes), &Noted::default())?;
        assert_eq!(made.gpus_visible as usize, indexes.len());
        Ok(made.created)
    }

    fn owners(&self) -> Vec<String> {
        self.agent().machines().unwrap()
    }

    fn assert_clean(&self, owner: &str) {
        let left = self.machine.left_over(owner, &self.slots(&[0, 1, 2, 3, 4, 5, 6, 7])).unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn stops_at(phase: &str) -> Noted {
    Noted { stop_at: Some(phase.to_owned()), ..Noted::default() }
}

#[test]
fn a_slice_is_made_once_and_released_with_evidence() {
    let host = Host::new();
    let noted = Noted::default();
    let made = host.agent().provision(&host.wanted("a1", &[0, 1]), &noted).unwrap();
    assert_eq!(*noted.seen.lock().unwrap(), TaskType::VmProvision.phases());
    assert_eq!((made.gpus_visible, made.created, made.ssh_port), (2, true, 22_000));
    assert!(made.ssh_host.parse::<std::net::Ipv4Addr>().unwrap().is_loopback());
    let again = host.agent().provision(&host.wanted("a1", &[0, 1]), &Noted::default()).unwrap();
    assert_eq!((again.created, &again.ssh_host, again.ssh_port), (false, &made.ssh_host, made.ssh_port));
    assert!(host.provision("a2", &[2]).unwrap());
    assert_eq!(host.owners(), ["a1", "a2"]);

    let noted = Noted::default();
    let input = VmReleaseInput { owner: "a1".to_owned(), slots: host.slots(&[0, 1]) };
    let released = host.agent().release(&input, &noted).unwrap();
    assert_eq!(*noted.seen.lock().unwrap(), TaskType::VmRelease.phases());
    let all = ReleasedVm { machine_removed: true, disks_wiped: 2, devices_reset: 4, lease_removed: true };
    assert_eq!(released, all);
    assert_eq!(host.release("a1", &[0, 1]).unwrap(), ReleasedVm::default(), "nothing is left");
    assert_eq!(host.owners(), ["a2"]);
    assert!(host.provision("a3", &[0, 1]).unwrap());
}

#[test]
fn a_slot_is_never_in_two_machines() {
    let host = Host::new();
    host.provision("a1", &[0, 1]).unwrap();
    let refused = host.provision("a2", &[1, 2]).unwrap_err();
    assert_eq!(refused.code, FailureCode::Unavailable);
    assert!(refused.message.contains("slot 1 is leased by a1"), "{}", refused.message);
    assert_eq!(host.owners(), ["a1"], "what was refused left nothing");
    // The same disk under another number is the same disk.
    let mut sly = host.wanted("a2", &[2]);
    sly.slots[0].nvme_device = host.slots(&[0])[0].nvme_device.clone();
    assert_eq!(host.agent().provision(&sly, &Noted::default()).unwrap_err().code, FailureCode::Unavailable);
    // Taking back what was refused touches nothing of the other.
    assert_eq!(host.release("a2", &[1, 2]).unwrap(), ReleasedVm::default());
    assert!(!host.provision("a1", &[0, 1]).unwrap(), "it is still there");
    // The same owner cannot have another machine before it has released the first.
    assert_eq!(host.provision("a1", &[0, 1, 2]).unwrap_err().code, FailureCode::Invalid);
}

#[test]
fn a_crash_in_any_phase_of_making_can_be_finished_or_taken_back() {
    for phase in TaskType::VmProvision.phases() {
        for finish in [true, false] {
            let host = Host::new();
            let stopped = host.agent().provision(&host.wanted("a1", &[0, 1]), &stops_at(phase));
            assert!(stopped.is_err(), "{phase}");
            let leased = *phase != "lease";
            assert_eq!(host.owners(), if leased { vec!["a1"] } else { vec![] }, "{phase}");
            if leased {
                assert_eq!(host.provision("a2", &[1]).unwrap_err().code, FailureCode::Unavailable, "{phase}");
            }
            if finish {
                host.provision("a1", &[0, 1]).unwrap();
                assert!(!host.provision("a1", &[0, 1]).unwrap(), "{phase}");
            }
            let released = host.release("a1", &[0, 1]).unwrap();
            assert_eq!(released.lease_removed, leased || finish, "{phase}");
            host.assert_clean("a1");
            assert!(host.owners().is_empty() && host.provision("a2", &[0, 1]).unwrap(), "{phase}");
        }
    }
}

#[test]
fn a_crash_in_any_phase_of_releasing_is_finished_by_the_next_release_only() {
    for phase in TaskType::VmRelease.phases() {
        let host = Host::new();
        host.provision("a1", &[0, 1]).unwrap();
        let input = VmReleaseInput { owner: "a1".to_owned(), slots: host.slots(&[0, 1]) };
        assert!(host.agent().release(&input, &stops_at(phase)).is_err(), "{phase}");
        if !["shutdown", "verify"].contains(phase) {
            assert_eq!(host.owners(), ["a1"], "{phase}");
            for owner in ["a1", "a2"] {
                let refused = host.provision(owner, &[0, 1]).unwrap_err();
                assert_eq!(refused.code, FailureCode::Unavailable, "{phase}: {owner}");
            }
        }
        let released = host.release("a1", &[0, 1]).unwrap();
        assert_eq!(released.lease_removed, *phase != "verify", "{phase}");
        host.assert_clean("a1");
        assert!(host.owners().is_empty() && host.provision("a2", &[0, 1]).unwrap(), "{phase}");
    }
}

#[test]
fn a_machine_whose_lease_was_lost_counts_all_the_same() {
    let host = Host::new();
    host.provision("a1", &[0, 1]).unwrap();
    std::fs::remove_dir_all(host.dir.path().join("slices")).unwrap();
    assert_eq!(host.owners(), ["a1"]);
    assert_eq!(host.provision("a2", &[0]).unwrap_err().code, FailureCode::Unavailable);
    assert!(!host.provision("a1", &[0, 1]).unwrap(), "it is taken up again");
    std::fs::remove_dir_all(host.dir.path().join("slices")).unwrap();
    let released = host.release("a1", &[0, 1]).unwrap();
    assert_eq!((released.machine_removed, released.disks_wiped, released.lease_removed), (true, 2, false));
    host.assert_clean("a1");
}

#[test]
fn a_lease_that_cannot_be_read_stops_everything() {
    let host = Host::new();
    host.provision("a1", &[0]).unwrap();
    std::fs::write(host.dir.path().join("slices/a1.json"), "{").unwrap();
    assert!(host.provision("a2", &[1]).unwrap_err().message.contains("damaged"));
    assert!(host.agent().machines().is_err());
}

#[test]
fn restarts_and_keys_need_a_machine() {
    let host = Host::new();
    let restart =
        |owner: &str| host.agent().restart(&VmRestartInput { owner: owner.to_owned() }, &Noted::default());
    let keys = |username: &str, keys: &[&str]| {
        let authorized_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let input =
            VmAuthorizedKeysInput { owner: "a1".to_owned(), username: username.to_owned(), authorized_keys };
        host.agent().set_keys(&input, &Noted::default())
    };
    assert_eq!(restart("a1").unwrap_err().code, FailureCode::Unavailable);
    assert_eq!(keys("alice", &[KEY]).unwrap_err().code, FailureCode::Unavailable);
    host.provision("a1", &[0, 1, 2]).unwrap();
    assert_eq!(restart("a1").unwrap().gpus_visible, 3);
    let set = |list: &[&str]| keys("alice", list).map(|set| (set.keys, set.changed)).unwrap();
    assert_eq!((set(&[KEY]), set(&[]), set(&[])), ((1, false), (0, true), (0, false)));
    assert_eq!(keys("bob", &[KEY]).unwrap_err().code, FailureCode::Invalid);
    assert_eq!(keys("alice", &["command=\"id\" x"]).unwrap_err().code, FailureCode::Invalid);
    let retain = |list: &[&str]| {
        let authorized_keys = list.iter().map(|key| (*key).to_owned()).collect();
        let (owner, username) = ("a1".to_owned(), "alice".to_owned());
        let input = VmAuthorizedKeysInput { owner, username, authorized_keys };
        host.agent().retain_keys(&input, &Noted::default()).map(|set| (set.keys, set.changed)).unwrap()
    };
    assert_eq!(retain(&[KEY]), (0, false), "what the machine does not have is not added");
    assert_eq!((set(&[KEY]), retain(&[KEY]), retain(&[])), ((1, true), (1, false), (0, true)));
    // Asked for again with other keys, it is the same machine and has those.
    assert!(!host.provision("a1", &[0, 1, 2]).unwrap());
    assert_eq!(set(&[KEY]), (1, false));
}

#[test]
fn what_makes_no_sense_is_refused_and_touches_nothing() {
    let host = Host::new();
    let good = host.wanted("a1", &[0, 1]);
    let with = |change: &dyn Fn(&mut VmProvisionInput)| {
        let mut input = good.clone();
        change(&mut input);
        input
    };
    for bad in [
        with(&|input| input.owner = "../a1".to_owned()),
        with(&|input| input.username = "-rf".to_owned()),
        with(&|input| input.slots.clear()),
        with(&|input| input.slots[1].slot_index = 0),
        with(&|input| input.slots[1].pci_address = input.slots[0].pci_address.clone()),
        with(&|input| input.slots[0].nvme_device = Some("../sda".to_owned())),
        with(&|input| input.image = "/etc/passwd".to_owned()),
        with(&|input| input.vcpus = 0),
        with(&|input| input.memory_mib = 0),
        with(&|input| input.authorized_keys = vec!["no key".to_owned()]),
    ] {
        let refused = host.agent().provision(&bad, &Noted::default()).unwrap_err();
        assert_eq!(refused.code, FailureCode::Invalid, "{bad:?}");
        assert!(host.owners().is_empty());
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_real_machine_without_a_hypervisor_says_so_and_leases_nothing() {
    let host = Host::new();
    let dir = tempfile::tempdir().unwrap();
    let config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    let slices = real::drivers(Ambient::system(), &config).slices;
    let steps = Noted::default();
    let owner = "a1".to_owned();
    let release = VmReleaseInput { owner: owner.clone(), slots: host.slots(&[0]) };
    for refused in [
        slices.provision(&host.wanted("a1", &[0]), &steps).map(drop),
        slices.release(&release, &steps).map(drop),
        slices.restart(&VmRestartInput { owner }, &steps).map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, FailureCode::Unavailable);
        assert!(refused.message.contains("no hypervisor driver"), "{}", refused.message);
    }
    assert!(slices.machines().unwrap().is_empty() && is_empty(dir.path()));
}
