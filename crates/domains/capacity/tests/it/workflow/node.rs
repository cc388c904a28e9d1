//! The node: it gets its tasks and tells their ends through the fleet's own functions.

use chrono::TimeDelta;
use fleet::service::dispatch::{self, Ask};
use kernel::ids::{NodeId, TaskId};
use node_proto::{
    Task, Work,
    catalog::{
        DeprovisionedUser, GpuReading, HealthReport, InstalledKeys, ProvisionedUser, ProvisionedVm, Rebooted,
        ReleasedVm, RestartedVm, TaskType,
    },
    contract::{Ending, FailureCode, Phase, TaskFailure, TaskResult},
};
use serde_json::{Value, json};
use sqlx::Row as _;

use super::kit::{GPUS, Kit, TASK_SECONDS};

pub fn failed(code: FailureCode, message: &str) -> Ending {
    Ending::Failed { failure: TaskFailure::new(code, message) }
}

impl Kit {
    /// The next tasks of a kind end so.
    pub fn ends(&self, kind: TaskType, endings: Vec<Ending>) {
        self.script.lock().unwrap().insert(kind.name(), endings);
    }

    /// The node ends the task that is waited for with this key, as the script says or else well; or, while it is
    /// away, time passes.
    pub async fn answer(&self, key: &str) {
        if *self.silent.lock().unwrap() {
            self.clock.advance(TimeDelta::seconds(TASK_SECONDS + 1));
            dispatch::expire_overdue(&self.fleet, 100).await.unwrap();
            return;
        }
        let (task, node, kind, payload) = self.waited_for(key).await;
        let ask = Ask { node, room: 64, holding: None };
        dispatch::tasks_lease(&self.fleet, &[ask]).await.unwrap();
        let signed: Task = serde_json::from_slice(&payload).unwrap();
        let scripted =
            self.script.lock().unwrap().get_mut(kind.name()).filter(|e| !e.is_empty()).map(|e| e.remove(0));
        let ending = scripted.unwrap_or_else(|| Ending::Succeeded { output: done(signed.work().unwrap()) });
        let known = kind.phases().iter().map(|name| (*name).to_owned());
        let phases = known.chain([format!("host-{}", node.uuid())]);
        let started_at = self.test.db.ambient().now();
        let phases = phases.map(|name| Phase { name, started_at, duration_ms: Some(7) }).collect();
        let told = TaskResult { ending, phases };
        dispatch::result(&self.fleet, node, task, told, &self.origin()).await.unwrap();
    }

    async fn waited_for(&self, key: &str) -> (TaskId, NodeId, TaskType, Vec<u8>) {
        let mut admin = self.admin.lock().await;
        let row = sqlx::query(
            "SELECT id, node_id, task_type, payload FROM node_tasks
             WHERE waiting_key = $1 AND state IN ('queued', 'dispatched', 'running') ORDER BY id DESC LIMIT 1",
        )
        .bind(key)
        .fetch_optional(&mut *admin)
        .await
        .unwrap()
        .unwrap_or_else(|| panic!("no open task for {key}"));
        let kind: String = row.get("task_type");
        let (id, node): (uuid::Uuid, uuid::Uuid) = (row.get("id"), row.get("node_id"));
        (id.into(), node.into(), TaskType::parse(&kind).unwrap(), row.get("payload"))
    }
}

/// What a healthy node answers.
fn done(work: Work) -> Value {
    let gpus = u32::try_from(GPUS).unwrap();
    let value = match work {
        Work::ProvisionUser(input) => serde_json::to_value(ProvisionedUser {
            home: format!("/home/{}", input.account.username),
            username: input.account.username,
            uid: input.account.uid,
            gid: input.account.gid,
            keys: 1,
            created: true,
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
