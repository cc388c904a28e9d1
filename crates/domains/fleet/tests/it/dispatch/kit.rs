//! One installation: a database, keys, a clock, a party that waits.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::TimeDelta;
use fleet::{
    Completion, Fleet, Settings,
    api::{CompletedTask, TaskRequest, Waiter, Waiting},
    authority::{Signing, Trust, TrustSettings},
    service::dispatch::{self, Ask, LeasedTask},
};
use kernel::{
    Code, CorrelationId, Failure, ManualClock, Secret,
    ids::{NodeId, TaskId},
};
use node_proto::{
    catalog::{Collect, CollectInput},
    contract::{Ending, FailureCode, TaskFailure, TaskResult},
};
use pg::{Origin, Permit, WriteTx};
use serde_json::json;
use tempfile::TempDir;
use testkit::{DefaultPolicies, TestDb};
use trust::signer::FileCustody;

/// Remembers what it was told; fails when it is asked to.
#[derive(Default)]
pub struct Told {
    pub tasks: Mutex<Vec<CompletedTask>>,
    pub fails: Mutex<bool>,
}

#[async_trait]
impl Completion for Told {
    fn waiter(&self) -> Waiter {
        Waiter::SagaStep
    }
    async fn completed(&self, _: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure> {
        if *self.fails.lock().unwrap() {
            return Err(std::io::Error::other("not now").into());
        }
        self.tasks.lock().unwrap().push(task.clone());
        Ok(())
    }
}

pub struct Kit {
    pub test: TestDb,
    pub clock: Arc<ManualClock>,
    pub fleet: Fleet,
    pub told: Arc<Told>,
    _home: TempDir,
}

pub const GOOD_FOR: TimeDelta = TimeDelta::hours(1);

impl Kit {
    pub async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let home = tempfile::tempdir().unwrap();
        let custody = Arc::new(FileCustody::open(home.path().join("task-signing")).unwrap());
        let settings = TrustSettings {
            trust_domain: "gpuaas.test".to_owned(),
            master_key: Secret::new([7; 32]),
            signing: Signing::Custody(custody),
        };
        let trust = Trust::new(test.db.clone(), settings).unwrap();
        trust.ensure().await.unwrap();
        let settings = Settings {
            node_url: "https://127.0.0.1:1".to_owned(),
            public_url: "http://127.0.0.1:2".to_owned(),
            programs_dir: home.path().join("programs"),
            auto_approve_simulated: false,
        };
        let told = Arc::new(Told::default());
        let fleet =
            Fleet::new(test.db.clone(), trust, Arc::new(DefaultPolicies), settings, vec![told.clone()]);
        test.sql("INSERT INTO regions VALUES ('here', 'Here', 1, now(), now())").await;
        Self { test, clock, fleet, told, _home: home }
    }

    /// The same installation for somebody with another master key.
    pub fn with_master_key(&self, key: [u8; 32]) -> Fleet {
        let settings = TrustSettings {
            trust_domain: "gpuaas.test".to_owned(),
            master_key: Secret::new(key),
            signing: Signing::Checks(self.fleet.trust().keyset_key()),
        };
        let trust = Trust::new(self.test.db.clone(), settings).unwrap();
        let settings = self.fleet.settings().clone();
        Fleet::new(self.test.db.clone(), trust, Arc::new(DefaultPolicies), settings, Vec::new())
    }

    pub async fn node(&self) -> NodeId {
        let id: NodeId = self.test.db.ambient().id();
        let uuid = id.uuid();
        self.test
            .sql(&format!(
                "INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                 VALUES ('{uuid}', '{uuid}', 'here', 'active', now(), now(), now())"
            ))
            .await;
        id
    }

    pub fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    pub async fn write(&self) -> WriteTx {
        self.test.db.write(Permit::system("test", self.origin()), "test.write").await.unwrap()
    }

    pub async fn queue(&self, node: NodeId) -> TaskId {
        // Ids sort by time.
        self.clock.advance(TimeDelta::milliseconds(1));
        let mut tx = self.write().await;
        let request = TaskRequest::<Collect> {
            node,
            input: CollectInput { parts: Vec::new() },
            attempt: 1,
            good_for: GOOD_FOR,
            waiting: Some(Waiting { waiter: Waiter::SagaStep, key: "key".to_owned() }),
        };
        let id = self.fleet.task_queue(&mut tx, request).await.unwrap();
        tx.commit(None).await.unwrap();
        id
    }

    pub async fn tasks_lease(&self, node: NodeId, holding: Option<Vec<TaskId>>) -> Vec<TaskId> {
        ids(&dispatch::tasks_lease(&self.fleet, &[Ask { node, room: 16, holding }]).await.unwrap())
    }

    pub async fn given(&self, node: NodeId) -> TaskId {
        let task = self.queue(node).await;
        assert_eq!(self.tasks_lease(node, None).await, [task]);
        task
    }

    pub async fn text(&self, sql: String) -> String {
        self.test.one(&sql).await
    }

    pub async fn state(&self, task: TaskId) -> String {
        self.text(format!("SELECT state FROM node_tasks WHERE id = '{}'", task.uuid())).await
    }

    pub async fn audited(&self, action: &str, result: &str) -> String {
        self.text(format!(
            "SELECT count(*)::text FROM audit_logs WHERE action = '{action}' AND result = '{result}'"
        ))
        .await
    }

    pub async fn result_report(&self, node: NodeId, task: TaskId, ending: Ending) -> Result<bool, Code> {
        let told = TaskResult { ending, phases: Vec::new() };
        match dispatch::result(&self.fleet, node, task, told, &self.origin()).await {
            Ok(answer) => Ok(answer.counted),
            Err(Failure::Problem(problem)) => Err(problem.code),
            Err(Failure::Internal(_) | Failure::Bug(_)) => Err(Code::InternalError),
        }
    }

    pub fn endings(&self) -> Vec<String> {
        let tasks = self.told.tasks.lock().unwrap();
        tasks
            .iter()
            .map(|task| format!("{:?}", task.ending).chars().take_while(|c| c.is_alphabetic()).collect())
            .collect()
    }
}

pub fn ids(claimed: &[LeasedTask]) -> Vec<TaskId> {
    claimed.iter().map(|task| task.id).collect()
}

pub fn succeeded() -> Ending {
    Ending::Succeeded { output: json!({ "parts": [] }) }
}

pub fn failed(message: &str) -> Ending {
    Ending::Failed { failure: TaskFailure::new(FailureCode::Driver, message) }
}
