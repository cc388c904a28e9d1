//! The executor of a real node, with simulated drivers and files.

use std::{sync::Arc, time::Duration};

use kernel::Ambient;
use node_agent::{
    drivers::{
        Done, DriverError, Drivers, HostDriver, Steps,
        simulated::{Machine, Profile},
    },
    executor::{Executor as _, ThreadExecutor, Track},
    handlers::{DrainMark, Handlers},
};
use node_proto::{
    TaskKind,
    catalog::{
        DeprovisionUserInput, DeprovisionedUser, Drain, InstallAuthorizedKeysInput, InstalledKeys,
        ProvisionUser, ProvisionUserInput, ProvisionedUser, TopologyDiscover, Undrain, VmAuthorizedKeys,
        VmProvision, VmRelease, VmRestart,
    },
    contract::FailureCode,
};
use serde_json::{Value, json};

use super::node::{Doing, Node, job_of};

struct Panics;

impl HostDriver for Panics {
    fn provision_user(&self, _: &ProvisionUserInput, _: &dyn Steps) -> Done<ProvisionedUser> {
        panic!("of its own accord")
    }
    fn deprovision_user(&self, _: &DeprovisionUserInput, _: &dyn Steps) -> Done<DeprovisionedUser> {
        Err(DriverError::failed("no"))
    }
    fn install_keys(&self, _: &InstallAuthorizedKeysInput, _: &dyn Steps) -> Done<InstalledKeys> {
        Err(DriverError::failed("no"))
    }
    fn retain_keys(&self, _: &InstallAuthorizedKeysInput, _: &dyn Steps) -> Done<InstalledKeys> {
        Err(DriverError::failed("no"))
    }
    fn users(&self) -> Done<Vec<String>> {
        Ok(Vec::new())
    }
}

fn user() -> Value {
    json!({ "account": { "username": "u1", "uid": 20001, "gid": 20001 }, "owner": "a", "shell": "/bin/sh",
        "authorized_keys": [], "sudo": false })
}

/// The first slot of the machine below.
fn slice() -> Value {
    let found = machine().drivers().devices.discover(&Track::new(Ambient::system())).unwrap();
    let slot = &found.candidates[0];
    json!({ "owner": "s1", "slots": [{ "slot_index": 0, "pci_address": slot.pci_address,
        "nvme_device": slot.nvme_device, "fabric_vf": slot.fabric_vf }], "vcpus": 24, "memory_mib": 65536,
        "image": "ubuntu-24.04", "username": "u1", "authorized_keys": [] })
}

#[tokio::test]
async fn a_slice_goes_through_every_handler_and_shows_in_the_inventory() {
    let machine = machine();
    let start = || handlers(machine.drivers(), DrainMark::in_memory());
    let owners = || machine.drivers().slices.machines().unwrap();
    let made = done(start(), VmProvision::TYPE.name(), slice()).await.unwrap();
    assert_eq!((&made["gpus_visible"], &made["created"]), (&json!(1), &json!(true)));
    assert_eq!(owners(), ["s1"]);
    let restarted = done(start(), VmRestart::TYPE.name(), json!({ "owner": "s1" })).await.unwrap();
    assert_eq!(restarted, json!({ "gpus_visible": 1 }));
    let keys = json!({ "owner": "s1", "username": "u1", "authorized_keys": [] });
    let keys = done(start(), VmAuthorizedKeys::TYPE.name(), keys).await.unwrap();
    assert_eq!(keys, json!({ "keys": 0, "changed": false }));
    let release = json!({ "owner": "s1", "slots": slice()["slots"] });
    let released = done(start(), VmRelease::TYPE.name(), release).await.unwrap();
    assert_eq!((&released["machine_removed"], &released["disks_wiped"]), (&json!(true), &json!(1)));
    assert!(owners().is_empty());
}

async fn done(handlers: Arc<Handlers>, task_type: &str, params: Value) -> Done<Value> {
    let node = Node::new(Doing::fine());
    let task = node.task_of(1, task_type, params);
    let (job, finish, ended) = job_of(&task);
    ThreadExecutor::new(handlers).start(job, finish);
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap().unwrap()
}

fn handlers(drivers: Drivers, drain: DrainMark) -> Arc<Handlers> {
    Arc::new(Handlers { drivers: Arc::new(drivers), drain, replace: None })
}

fn machine() -> Machine {
    Machine::new(Profile::ALL[0], "m1", 1, Ambient::system())
}

#[tokio::test]
async fn a_panic_of_a_driver_ends_its_task_and_nothing_else() {
    let drivers = Drivers { host: Box::new(Panics), ..machine().drivers() };
    let handlers = handlers(drivers, DrainMark::in_memory());
    let error = done(handlers.clone(), ProvisionUser::TYPE.name(), user()).await.unwrap_err();
    assert_eq!(error.code, FailureCode::Driver);
    assert!(error.message.contains("of its own accord"));
    assert!(done(handlers, TopologyDiscover::TYPE.name(), json!({})).await.is_ok());
}

#[tokio::test]
async fn a_drained_node_takes_no_new_tenant_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drain.json");
    let machine = machine();
    let start = || handlers(machine.drivers(), DrainMark::open(path.clone()));
    let drained = done(start(), Drain::TYPE.name(), json!({ "reason": "maintenance" })).await.unwrap();
    assert_eq!(drained, json!({ "drained": true }));
    let error = done(start(), ProvisionUser::TYPE.name(), user()).await.unwrap_err();
    assert_eq!(error.code, FailureCode::Unavailable);
    let error = done(start(), VmProvision::TYPE.name(), slice()).await.unwrap_err();
    assert_eq!(error.code, FailureCode::Unavailable);
    assert_eq!(machine.drivers().slices.machines(), Ok(Vec::new()));
    done(start(), Undrain::TYPE.name(), json!({})).await.unwrap();
    assert!(done(start(), ProvisionUser::TYPE.name(), user()).await.is_ok());
    assert!(done(start(), VmProvision::TYPE.name(), slice()).await.is_ok());
    std::fs::write(&path, "{").unwrap();
    assert!(DrainMark::open(path).drained());
}
