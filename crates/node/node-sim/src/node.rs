//! One simulated node: the real agent on a machine that does not exist.
//!
//! Two things go on side by side. One keeps the node's identity: it exchanges a token when there is none, or when
//! the certificate has expired. The other lets the agent run, and makes a new one when it has died. What a real
//! node would keep on its disks is kept across deaths, also of this process: identity, journal, accounts, guests.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use kernel::{
    Ambient, Secret,
    ids::{NodeId, TaskId},
};
use node_agent::{
    drivers::simulated::{Machine, Profile},
    identity::{self, Facts, IdentityError, IdentityStore as _},
    journal::JournalError,
    redact,
    session::{Agent, Log, Parts, Report, Settings, Streams as _, Updates},
};
use node_proto::contract::JoinInfo;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::skewed,
    dice::{Dice, Purpose},
    executor::{Body, SimExecutor},
    journal::{JournalFile, SimJournal},
    plan::Plan,
    report::Counters,
    script::NodeScript,
    state::{NodeStore, StateDir},
    terminals::{Sandbox, SimShells, SimStreams},
    wire::{Link, Network},
};

/// The most log lines that wait to be handed over.
const LOG_LINES: usize = 64;
const LOOK_AT_IDENTITY: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(2);
/// Nodes begin one after the other, not all in the same moment.
const RAMP: Duration = Duration::from_millis(1);
const LONGEST_RAMP: Duration = Duration::from_secs(10);

/// What the list says about a node now.
pub struct Known {
    pub join: JoinInfo,
    pub token: Option<Secret<String>>,
}

/// The sudden death of an agent. Clones are of the same agent.
#[derive(Clone, Default)]
pub struct Crash {
    dead: CancellationToken,
    /// How long it stays so, if not as usual.
    down_for: Arc<OnceLock<Duration>>,
}

impl Crash {
    /// The agent dies here: whoever calls this does nothing more.
    pub async fn now(&self) {
        self.dead.cancel();
        std::future::pending::<()>().await;
    }

    /// The same, and says for how long.
    pub async fn now_for(&self, down_for: Option<Duration>) {
        if let Some(down_for) = down_for {
            // Only the first death counts.
            let _ = self.down_for.set(down_for);
        }
        self.now().await;
    }

    /// Passes unless the agent is dead; the dead do nothing more.
    pub async fn survived(&self) {
        if self.dead.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    async fn happened(&self) {
        self.dead.cancelled().await;
    }
}

/// What all nodes have in common.
pub struct Surroundings {
    pub plan: Arc<Plan>,
    pub dir: StateDir,
    pub counters: Arc<Counters>,
    pub real: Ambient,
    pub sandbox: Arc<Sandbox>,
}

pub struct SimNode {
    node: NodeId,
    hostname: String,
    number: u64,
    plan: Arc<Plan>,
    body: Arc<Body>,
    journal: Arc<JournalFile>,
    store: Arc<NodeStore>,
    network: Arc<Network>,
    shells: Arc<SimShells>,
    ambient: Ambient,
    counters: Arc<Counters>,
    restarts: Dice,
    joined: Notify,
}

impl SimNode {
    pub fn new(
        around: &Surroundings,
        hostname: &str,
        number: u64,
        profile: Profile,
        node: NodeId,
    ) -> Result<Self, JournalError> {
        let Surroundings { plan, dir, counters, real, sandbox } = around;
        let (plan, counters, real) = (plan.clone(), counters.clone(), real.clone());
        let nature = plan.nature(hostname, number);
        if !nature.skew.is_zero() {
            counters.fault_skew.add();
        }
        let ambient = skewed(&real, nature.skew);
        let path = dir.machine(node);
        let machine = Machine::open(profile, hostname, number, ambient.clone(), &path)
            .map_err(|error| JournalError::Io { path, error })?;
        let shells = SimShells::new(node, machine.clone(), sandbox.clone());
        let script = Arc::new(NodeScript::new(plan.script.clone(), hostname));
        let body = Body::new(machine, plan.clone(), nature, number, counters.clone(), script.clone(), real);
        let journal = JournalFile::open(dir.journal(node), plan.clone(), nature, number, counters.clone())?;
        Ok(Self {
            node,
            hostname: hostname.to_owned(),
            number,
            body: Arc::new(body),
            journal: Arc::new(journal),
            store: Arc::new(dir.node(node)),
            network: Arc::new(Network::new(plan.clone(), nature, number, counters.clone(), script)),
            shells: Arc::new(shells),
            ambient,
            restarts: Dice::new(plan.seed, number, Purpose::Restarts),
            joined: Notify::new(),
            counters,
            plan,
        })
    }

    /// Until `stop`.
    pub async fn live(
        self,
        knows: watch::Receiver<Known>,
        enrolling: Arc<Semaphore>,
        stop: CancellationToken,
    ) {
        let ramp = RAMP.saturating_mul(u32::try_from(self.number).unwrap_or(u32::MAX)).min(LONGEST_RAMP);
        if stop.run_until_cancelled(sleep(ramp)).await.is_none() {
            return;
        }
        tokio::select! {
            () = self.keep_identity(knows.clone(), &enrolling) => {}
            () = self.keep_running(&knows, &stop) => {}
        }
    }

    /// None, or one that has expired: the node cannot speak.
    fn needs_token(&self) -> bool {
        match self.store.load() {
            Ok(Some(identity)) => identity.expires_at() <= self.ambient.now(),
            Ok(None) => true,
            Err(error) => {
                tracing::warn!(node = %self.hostname, %error, "the identity cannot be read; a token replaces it");
                true
            }
        }
    }

    /// Never ends.
    async fn keep_identity(&self, mut knows: watch::Receiver<Known>, enrolling: &Semaphore) {
        let mut spent: Option<Secret<String>> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let (join, token) = {
                let known = knows.borrow_and_update();
                (known.join.clone(), known.token.clone().filter(|token| spent.as_ref() != Some(token)))
            };
            let Some(token) = token.filter(|_| self.needs_token()) else {
                tokio::select! {
                    changed = knows.changed() => if changed.is_err() { std::future::pending::<()>().await },
                    () = sleep(LOOK_AT_IDENTITY) => {}
                }
                continue;
            };
            let outcome = {
                // Closed never: it lives as long as the fleet.
                let _turn = enrolling.acquire().await;
                self.enroll(&join, &token).await
            };
            match outcome {
                Ok(()) => {
                    spent = Some(token);
                    pause = FIRST_PAUSE;
                    self.counters.enrolled.add();
                    self.joined.notify_one();
                }
                Err(IdentityError::Call(error)) if error.is_transient() && !error.is_about_identity() => {
                    tracing::debug!(node = %self.hostname, %error, "joining failed; trying again");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => {
                    tracing::warn!(node = %self.hostname, %error, "joining failed; waiting for another token");
                    spent = Some(token);
                }
            }
        }
    }

    async fn enroll(&self, join: &JoinInfo, token: &Secret<String>) -> Result<(), IdentityError> {
        let link = Arc::new(Link(self.network.clone()));
        let facts = self.facts();
        Box::pin(identity::enroll(link, &self.ambient, &*self.store, &facts, join, token)).await?;
        Ok(())
    }

    fn facts(&self) -> Facts {
        Facts {
            hostname: self.hostname.clone(),
            agent_version: self.body.agent_version(),
            boot_id: self.body.drivers().power.boot_id(),
            machine_id: format!("simulated-{}", self.node),
        }
    }

    /// Ends after `stop`.
    async fn keep_running(&self, knows: &watch::Receiver<Known>, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if !matches!(self.store.load(), Ok(Some(_))) {
                tokio::select! {
                    () = self.joined.notified() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let (crash, gone) = (Crash::default(), CancellationToken::new());
            let log = Log::new(self.ambient.clone(), LOG_LINES, redact::redact);
            let streams = Arc::new(SimStreams::new(self.shells.clone(), log.clone()));
            let agent = self.agent(&crash, &gone, (log, &streams), knows.borrow().join.url.clone());
            let ended = tokio::select! {
                ended = Box::pin(agent.run(stop.clone())) => Some(ended),
                () = crash.happened() => None,
            };
            gone.cancel();
            // However it ended: no shell outlives its agent.
            streams.stop().await;
            if let Some(Err(error)) = &ended {
                tracing::warn!(node = %self.hostname, %error, "the agent ended; starting it again");
            }
            if !stop.is_cancelled() {
                self.counters.restarts.add();
                let usual = Duration::from_millis(self.plan.extents.restart_ms);
                let usual = self.restarts.between(&(usual / 2..=usual * 3 / 2));
                let down_for = crash.down_for.get().copied().unwrap_or(usual);
                stop.run_until_cancelled(sleep(down_for)).await;
            }
        }
    }

    fn agent(
        &self,
        crash: &Crash,
        gone: &CancellationToken,
        (log, streams): (Log, &Arc<SimStreams>),
        url: String,
    ) -> Agent<Link, SimJournal, SimExecutor> {
        let body = self.body.clone();
        let reports = move || Report {
            inventory: body.inventory(),
            findings: body.findings(),
            metrics: body.drivers().diag.metrics(),
        };
        Agent::new(Parts {
            connect: Arc::new(Link(self.network.clone())),
            journal: SimJournal { file: self.journal.clone(), crash: crash.clone() },
            executor: SimExecutor { body: self.body.clone(), crash: crash.clone(), gone: gone.clone() },
            store: self.store.clone(),
            ambient: self.ambient.clone(),
            facts: self.facts(),
            reports: Arc::new(reports),
            updates: Arc::new(Heard(self.counters.clone())),
            log,
            settings: Settings { url: Some(url), grace: GRACE, ..Settings::default() },
            streams: streams.clone(),
        })
    }
}

/// Counts the reports that the control plane has heard. Simulated programs are never given up.
struct Heard(Arc<Counters>);

impl Updates for Heard {
    fn rolled_back(&self, _: TaskId) -> bool {
        false
    }

    fn confirm(&self) {
        self.0.heartbeats.add();
    }
}
