//! A node on which everything works.

use kernel::ids::NodeId;
use node_proto::{
    Task, Work,
    catalog::{
        DeprovisionedUser, GpuReading, HealthReport, InstalledKeys, ProvisionedUser, ProvisionedVm, Rebooted,
        ReleasedVm, RestartedVm,
    },
    contract::Ending,
};
use serde_json::{Value, json};

use super::TestCapacity;

impl TestCapacity {
    /// The node does all that waits for it, for an allocation of so many GPUs. Gives how many tasks that were.
    pub async fn node_answer(&self, node: NodeId, gpus: i32) -> usize {
        let leased = self.fleet.tasks_lease(node).await;
        for task in &leased {
            let signed: Task = serde_json::from_slice(&task.payload).unwrap();
            let ending = Ending::Succeeded { output: output(signed.work().unwrap(), gpus) };
            self.fleet.result_report(node, task.id, ending).await.unwrap();
        }
        leased.len()
    }
}

/// What a healthy node answers about an allocation of so many GPUs.
/// Of every whole machine here.
pub const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDb4KgPU1jW7Hu3tQge9APO7bGZuZVNdWcTfKs7Yr6d+";

pub fn output(work: Work, gpus: i32) -> Value {
    let gpus = u32::try_from(gpus).unwrap();
    let value = match work {
        Work::ProvisionUser(input) => serde_json::to_value(ProvisionedUser {
            home: format!("/home/{}", input.account.username),
            username: input.account.username,
            uid: input.account.uid,
            gid: input.account.gid,
            keys: 1,
            created: true,
            host_keys: vec![HOST_KEY.to_owned(), "ssh-ed25519 damaged".to_owned()],
        }),
        Work::DeprovisionUser(_) => serde_json::to_value(DeprovisionedUser::default()),
        Work::InstallAuthorizedKeys(_)
        | Work::VmAuthorizedKeys(_)
        | Work::RetainAuthorizedKeys(_)
        | Work::VmRetainAuthorizedKeys(_) => serde_json::to_value(InstalledKeys { keys: 1, changed: true }),
        Work::VmProvision(input) => serde_json::to_value(ProvisionedVm {
            owner: input.owner,
            ssh_host: "203.0.113.9".to_owned(),
            ssh_port: 2201,
            gpus_visible: gpus,
            created: true,
        }),
        Work::VmRelease(_) => serde_json::to_value(ReleasedVm {
            machine_removed: true,
            disks_wiped: gpus,
            devices_reset: gpus,
            lease_removed: true,
        }),
        Work::VmRestart(_) => serde_json::to_value(RestartedVm { gpus_visible: gpus }),
        Work::Reboot(_) => {
            serde_json::to_value(Rebooted { boot_id_before: "a".to_owned(), boot_id_after: "b".to_owned() })
        }
        Work::HealthProbe(input) => serde_json::to_value(HealthReport {
            profile: input.profile,
            passed: true,
            checks: Vec::new(),
            gpus: (0..input.expected_gpus).map(gpu).collect(),
        }),
        other => Ok(json!({ "unexpected": other.kind().name() })),
    };
    value.unwrap()
}

fn gpu(n: u32) -> GpuReading {
    GpuReading {
        pci_address: format!("0000:0{n}:00.0"),
        model: "T1".to_owned(),
        driver: "1".to_owned(),
        memory_mib: 1,
        temperature_celsius: None,
        utilization_percent: None,
        ecc_uncorrected: None,
    }
}
