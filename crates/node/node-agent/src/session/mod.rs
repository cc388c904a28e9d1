//! The network side of an agent: everything between it and the control plane, as one future.
//!
//! **How it works.** [`Agent::run`] opens the journal and closes what a former run left open. Then some loops
//! run side by side over one connection: `work` waits for tasks and follows each to the end of its telling,
//! `beat` reports, `renew` keeps the certificate alive, `ship` hands over log lines. A gateway that needs the node is dialled
//! (`tunnels`). They share what is in
//! [`Session`]; there is no thread and no global state, so that thousands of agents can live in one process.
//!
//! **On a crash** (the future is dropped, or the process ends) nothing is lost that matters: the journal and
//! the identity are durable at every step, and everything else is told anew.

mod beat;
mod follow;
mod intake;
mod log;
mod program;
mod recent;
mod renew;
mod report;
mod tunnels;
mod turns;
mod work;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kernel::{
    Ambient, Secret,
    ids::{NodeId, TaskId},
};
use node_proto::{TaskType, contract::JoinInfo};
use node_tunnel::Gate;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub(crate) use log::cut;
pub use log::{Log, Redact, TARGET};
pub(crate) use recent::Place;
pub use report::{MachineReports, Report, ReportSource, Reporting};
pub use tunnels::{NoStreams, Streams};

use crate::{
    client::Client,
    executor::Executor,
    identity::{self, Facts, Identity, IdentityError, IdentityStore},
    journal::{Journal, JournalError, Ledger},
    transport::{Address, Connect},
};

/// What only the program around the agent knows: whether it is a new one on trial.
pub trait Updates: Send + Sync + 'static {
    /// The program that this task brought was given up, and the one before put back.
    fn rolled_back(&self, task: TaskId) -> bool;
    /// The control plane has accepted a report of this agent: it works.
    fn confirm(&self);
}

/// Where programs are not replaced.
pub struct NoUpdates;

impl Updates for NoUpdates {
    fn rolled_back(&self, _: TaskId) -> bool {
        false
    }
    fn confirm(&self) {}
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the node listener is now, if not where the node joined.
    pub url: Option<String>,
    /// How long running tasks may go on when the agent is asked to stop.
    pub grace: Duration,
    /// The maximum number of leased tasks: waiting, running or being reported.
    pub max_leased: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { url: None, grace: Duration::from_secs(20), max_leased: 32 }
    }
}

/// All that an agent is made of.
pub struct Parts<C, J, E> {
    pub connect: Arc<C>,
    pub journal: J,
    pub executor: E,
    pub store: Arc<dyn IdentityStore>,
    pub ambient: Ambient,
    pub facts: Facts,
    pub reports: Arc<dyn ReportSource>,
    pub updates: Arc<dyn Updates>,
    pub log: Log,
    pub settings: Settings,
    /// What can be opened through a tunnel.
    pub streams: Arc<dyn Streams>,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("this node has not joined; run `gpuaas-agent enroll` with a bootstrap token")]
    NotJoined,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// One agent. After [`Agent::run`] has ended or was dropped, a new one is made for the next run.
pub struct Agent<C, J, E> {
    parts: Parts<C, J, E>,
}

impl<C: Connect, J: Journal, E: Executor> Agent<C, J, E> {
    pub const fn new(parts: Parts<C, J, E>) -> Self {
        Self { parts }
    }

    /// Joins with a bootstrap or repair token.
    pub async fn enroll(&self, join: &JoinInfo, token: &Secret<String>) -> Result<Identity, IdentityError> {
        let Parts { connect, ambient, store, facts, .. } = &self.parts;
        Box::pin(identity::enroll(connect.clone(), ambient, &**store, facts, join, token)).await
    }

    /// Runs until `cancel`. Trouble with the control plane never ends it.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), AgentError> {
        let parts = self.parts;
        let identity = parts.store.load()?.ok_or(AgentError::NotJoined)?;
        let url = parts.settings.url.as_deref().unwrap_or(&identity.join.url);
        let address = Address::parse(url).map_err(IdentityError::from)?;
        let tls = identity.tls(&parts.ambient).map_err(IdentityError::from)?;
        let client =
            Client::new(parts.connect.clone(), address, parts.ambient.clone(), tls, identity.node_id());
        let ledger = Ledger::open(parts.journal, parts.ambient.now()).await?;
        let recovered = ledger.recover(&parts.facts, |id| parts.updates.rolled_back(id)).await?;
        if let Err(error) = ledger.sweep(parts.ambient.now()).await {
            parts.log.warn("journal", &error.to_string());
        }
        if recovered.interrupted > 0 {
            let text =
                format!("{} tasks were interrupted by the last stop of the agent", recovered.interrupted);
            parts.log.warn("journal", &text);
        }
        let who = Arc::new(Mutex::new(Who { current: Arc::new(identity.clone()), before: None }));
        let signers = who.clone();
        let signers = Box::new(move || Arc::new(lock(&signers).current.trust.keyset.clone()));
        let (client, began) = (Arc::new(client), Instant::now());
        let clock = client.clone();
        let started_at = Box::new(move || clock.server_now() - began.elapsed());
        let gate = Gate::new(identity.node_id(), parts.ambient.clone(), signers, started_at);
        let session = Arc::new(Session {
            node: identity.node_id(),
            connect: parts.connect,
            gate: Arc::new(gate),
            streams: parts.streams,
            tunnels: Mutex::default(),
            client,
            ledger,
            executor: parts.executor,
            store: parts.store,
            ambient: parts.ambient,
            facts: parts.facts,
            reports: parts.reports,
            updates: parts.updates,
            log: parts.log,
            settings: parts.settings,
            who,
            changing_trust: tokio::sync::Mutex::new(None),
            places: TaskType::ALL
                .iter()
                .map(|kind| (*kind, Arc::new(Semaphore::new(kind.at_once()))))
                .collect(),
            turns: Arc::default(),
            leased: Mutex::default(),
            leased_changed: Notify::new(),
            beat_now: Notify::new(),
            not_believed: Notify::new(),
            renew_asked: Notify::new(),
            complained: Mutex::default(),
            awaits_proof: Mutex::new(recovered.awaits_proof),
            proved: Notify::new(),
            stopping: AtomicBool::new(false),
            in_contact: AtomicBool::new(false),
            log_refused: AtomicBool::new(false),
        });
        let _tunnels = session.tunnels_end_with_this();
        if let Some(task) = recovered.awaits_proof {
            session.lease_add(task, Some(TaskType::SelfUpdate));
        }
        tokio::select! {
            () = session.work(recovered, &cancel) => {}
            () = session.beat() => {}
            () = session.renew() => {}
            () = session.ship() => {}
        }
        session.hang_up().await;
        // Parting words, if somebody listens.
        let _ = tokio::time::timeout(Duration::from_secs(2), session.ship_once()).await;
        Ok(())
    }
}

/// The identity in use, and the previous one until the control plane has accepted the new one.
struct Who {
    current: Arc<Identity>,
    before: Option<Arc<Identity>>,
}

/// What the loops share.
struct Session<C, J, E> {
    node: NodeId,
    connect: Arc<C>,
    client: Arc<Client<C>>,
    gate: Arc<Gate>,
    streams: Arc<dyn Streams>,
    tunnels: Mutex<tunnels::Tunnels>,
    ledger: Ledger<J>,
    executor: E,
    store: Arc<dyn IdentityStore>,
    ambient: Ambient,
    facts: Facts,
    reports: Arc<dyn ReportSource>,
    updates: Arc<dyn Updates>,
    log: Log,
    settings: Settings,
    who: Arc<Mutex<Who>>,
    /// Locked while trust or key pair change; the time after which the control plane may be asked for trust again.
    changing_trust: tokio::sync::Mutex<Option<Instant>>,
    places: BTreeMap<TaskType, Arc<Semaphore>>,
    turns: Arc<turns::Turns>,
    leased: Mutex<BTreeMap<TaskId, Option<TaskType>>>,
    leased_changed: Notify,
    beat_now: Notify,
    /// The control plane has refused the certificate.
    not_believed: Notify,
    /// The control plane wants a new key.
    renew_asked: Notify,
    /// When a certificate that does not work was last logged.
    complained: Mutex<Option<Instant>>,
    awaits_proof: Mutex<Option<TaskId>>,
    proved: Notify,
    stopping: AtomicBool,
    in_contact: AtomicBool,
    /// The control plane does not take log lines.
    log_refused: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    fn identity(&self) -> Arc<Identity> {
        lock(&self.who).current.clone()
    }

    /// False when the task is already leased.
    fn lease_add(&self, task: TaskId, kind: Option<TaskType>) -> bool {
        let mut leased = lock(&self.leased);
        let fresh = !leased.contains_key(&task);
        leased.entry(task).or_insert(kind);
        fresh
    }

    fn release(&self, task: TaskId) {
        lock(&self.leased).remove(&task);
        self.leased_changed.notify_one();
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
