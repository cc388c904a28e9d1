//! The node: it gets its tasks and tells their ends through the fleet's own functions.

use chrono::TimeDelta;
use fleet::service::dispatch::{self, Ask};
use kernel::ids::{NodeId, TaskId};
use node_proto::{
    Task,
    catalog::TaskType,
    contract::{Ending, FailureCode, Phase, TaskFailure, TaskResult},
};
use sqlx::Row as _;
use testcapacity::output;

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
        let ending =
            scripted.unwrap_or_else(|| Ending::Succeeded { output: output(signed.work().unwrap(), GPUS) });
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
