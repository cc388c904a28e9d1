//! A node for tests: what survives a crash, and agents that come and go on it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Ambient, Clock, Entropy, Secret,
    ids::{NodeId, TaskId},
};
use node_agent::{
    drivers::{Done, DriverError},
    executor::{Executor, Finish, Job, ProgramSource, Track},
    identity::{Facts, Identity, IdentityError, MemoryStore},
    journal::{Journal, MemoryJournal},
    session::{Agent, AgentError, Log, NoStreams, NoUpdates, Parts, Report, Settings, Streams, Updates},
    transport::Connect,
};
use node_proto::{SignedTask, Task, TaskKind, catalog::Drain, contract::JoinInfo};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::gateway::{Gateway, TOKEN, URL};
use super::pipes::Pipes;

/// Tokio's time as the time of day, a little off if need be.
struct TokioClock {
    began: tokio::time::Instant,
    skew: TimeDelta,
}

impl Clock for TokioClock {
    fn now(&self) -> DateTime<Utc> {
        let passed = TimeDelta::from_std(self.began.elapsed()).unwrap();
        DateTime::from_timestamp(1_800_000_000, 0).unwrap() + passed + self.skew
    }
}

struct Random;

impl Entropy for Random {
    fn fill(&self, out: &mut [u8]) {
        aws_lc_rs::rand::fill(out).unwrap();
    }
}

pub fn ambient(began: tokio::time::Instant, skew: TimeDelta) -> Ambient {
    Ambient::new(Arc::new(TokioClock { began, skew }), Arc::new(Random))
}

type Act = dyn Fn(&Job) -> Option<Done<Value>> + Send + Sync;

/// Does what the test says, at once; counts.
#[derive(Clone)]
pub struct Doing {
    pub started: Arc<Mutex<Vec<TaskId>>>,
    held: Arc<Mutex<Vec<(Job, Finish)>>>,
    act: Arc<Act>,
}

impl Doing {
    /// `None` means: it takes forever.
    pub fn new(act: impl Fn(&Job) -> Option<Done<Value>> + Send + Sync + 'static) -> Self {
        Self { started: Arc::default(), held: Arc::default(), act: Arc::new(act) }
    }

    pub fn fine() -> Self {
        Self::new(|_| Some(Ok(json!({ "drained": true }))))
    }

    pub fn count(&self, task: TaskId) -> usize {
        self.started.lock().unwrap().iter().filter(|id| **id == task).count()
    }

    /// What takes forever ends now.
    pub fn end_held(&self) {
        self.end_held_as(|_| Err(DriverError::failed("at last")));
    }

    pub fn end_held_as(&self, outcome: impl Fn(&Job) -> Done<Value>) {
        for (job, finish) in self.held.lock().unwrap().drain(..) {
            finish.end(outcome(&job));
        }
    }
}

impl Executor for Doing {
    fn start(&self, job: Job, finish: Finish) {
        self.started.lock().unwrap().push(job.task.task_id);
        match (self.act)(&job) {
            Some(outcome) => finish.end(outcome),
            None => self.held.lock().unwrap().push((job, finish)),
        }
    }
}

/// What survives a crash of the agent.
#[derive(Clone)]
pub struct Node {
    pub id: NodeId,
    pub gateway: Arc<Gateway>,
    pub ambient: Ambient,
    pub store: MemoryStore,
    pub journal: MemoryJournal,
    pub doing: Doing,
    pub facts: Facts,
    pub updates: Arc<dyn Updates>,
    pub streams: Arc<dyn Streams>,
}

pub struct Running {
    pub cancel: CancellationToken,
    pub ended: JoinHandle<Result<(), AgentError>>,
}

impl Running {
    pub fn start<C: Connect, J: Journal>(agent: Agent<C, J, Doing>) -> Self {
        let cancel = CancellationToken::new();
        let ended = tokio::spawn(agent.run(cancel.clone()));
        Self { cancel, ended }
    }

    /// As the loss of power does.
    pub async fn crash(self) {
        self.ended.abort();
        let _ = self.ended.await;
    }

    pub async fn stop(self) {
        self.cancel.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

impl Node {
    pub fn new(doing: Doing) -> Self {
        Self::skewed(doing, TimeDelta::zero())
    }

    pub fn skewed(doing: Doing, skew: TimeDelta) -> Self {
        let began = tokio::time::Instant::now();
        Self::timed(doing, ambient(began, TimeDelta::zero()), ambient(began, skew))
    }

    pub fn timed(doing: Doing, control_plane: Ambient, ambient: Ambient) -> Self {
        Self {
            id: uuid::Uuid::from_u128(7).into(),
            gateway: Gateway::new(control_plane),
            ambient,
            store: MemoryStore::default(),
            journal: MemoryJournal::default(),
            doing,
            facts: Facts {
                hostname: "n1".to_owned(),
                agent_version: "1.0.0".to_owned(),
                boot_id: "boot-1".to_owned(),
                machine_id: String::new(),
            },
            updates: Arc::new(NoUpdates),
            streams: Arc::new(NoStreams),
        }
    }

    /// A node that has joined.
    pub async fn joined(doing: Doing) -> Self {
        let node = Self::new(doing);
        node.enroll(&node.join(), TOKEN).await.unwrap();
        node
    }

    pub fn join(&self) -> JoinInfo {
        let authority = self.gateway.authority.lock().unwrap();
        JoinInfo {
            node_id: self.id,
            hostname: "n1".to_owned(),
            url: URL.to_owned(),
            root_sha256: vec![authority.root_sha256()],
            keyset_key: authority.keyset_key_hex(),
        }
    }

    pub fn agent<J: Journal>(&self, journal: J) -> Agent<Pipes, J, Doing> {
        self.agent_over(Pipes(self.gateway.clone()), journal)
    }

    /// With another network.
    pub fn agent_over<C: Connect, J: Journal>(&self, connect: C, journal: J) -> Agent<C, J, Doing> {
        Agent::new(Parts {
            connect: Arc::new(connect),
            journal,
            executor: self.doing.clone(),
            store: Arc::new(self.store.clone()),
            ambient: self.ambient.clone(),
            facts: self.facts.clone(),
            reports: Arc::new(Report::default),
            updates: self.updates.clone(),
            log: Log::new(self.ambient.clone(), 1000, str::to_owned),
            settings: Settings { grace: Duration::from_secs(5), ..Settings::default() },
            streams: self.streams.clone(),
        })
    }

    pub async fn enroll(&self, join: &JoinInfo, token: &str) -> Result<Identity, IdentityError> {
        self.agent(self.journal.clone()).enroll(join, &Secret::new(token.to_owned())).await
    }

    pub fn start(&self) -> Running {
        self.start_with(self.journal.clone())
    }

    pub fn start_with<J: Journal>(&self, journal: J) -> Running {
        Running::start(self.agent(journal))
    }

    pub fn task(&self, number: u128) -> Task {
        self.task_of(number, Drain::TYPE.name(), json!({ "reason": "test" }))
    }

    pub fn task_of(&self, number: u128, task_type: &str, params: Value) -> Task {
        let now = self.gateway.ambient.now();
        Task {
            task_id: uuid::Uuid::from_u128(number).into(),
            node_id: self.id,
            task_type: task_type.to_owned(),
            params,
            attempt: 1,
            issued_at: now,
            expires_at: now + TimeDelta::hours(1),
            correlation_id: uuid::Uuid::from_u128(1),
            traceparent: None,
            signer_version: 1,
        }
    }

    pub fn sign(&self, task: &Task) -> SignedTask {
        self.gateway.authority.lock().unwrap().sign(task)
    }

    pub fn queue(&self, task: &Task) -> TaskId {
        self.gateway.queue(self.sign(task));
        task.task_id
    }
}

/// A task as an executor gets it, outside of any session.
pub fn job_of(task: &Task) -> (Job, Finish, tokio::sync::oneshot::Receiver<Done<Value>>) {
    struct NoPrograms;
    impl ProgramSource for NoPrograms {
        fn fetch(&self, _: &str, _: u64, _: &std::path::Path) -> Done<()> {
            Err(DriverError::failed("there is none"))
        }
    }
    let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
    let (finish, ended) = Finish::new(place);
    let steps = Arc::new(Track::new(Ambient::system()));
    let work = task.work().unwrap();
    (Job { task: task.clone(), work, steps, programs: Arc::new(NoPrograms) }, finish, ended)
}
