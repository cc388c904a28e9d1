//! All nodes together: who they are comes from the list, which is read again whenever it changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use kernel::{Ambient, ids::NodeId};
use tokio::{sync::Semaphore, time::MissedTickBehavior};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    join::{Entry, JoinFile},
    node::{Known, SimNode, Surroundings},
    plan::Plan,
    report::Report,
    state::{StateDir, replace},
};

/// So many nodes enrol at once; the others wait their turn.
const ENROLLING_AT_ONCE: usize = 64;
const LOOK_AT_LIST: Duration = Duration::from_secs(1);
const STOP_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub join: PathBuf,
    pub state: PathBuf,
    pub plan: Plan,
    /// Written now and then, and at the end.
    pub report: Option<PathBuf>,
    pub summary_every: Duration,
}

/// Plays all nodes of the list until `stop`. Gives what happened.
pub async fn run(options: Options, stop: CancellationToken) -> anyhow::Result<Report> {
    let dir = StateDir::open(&options.state)
        .with_context(|| format!("cannot use the state directory {}", options.state.display()))?;
    let mut fleet = Fleet {
        around: Surroundings {
            plan: Arc::new(options.plan.clone()),
            dir,
            counters: Arc::default(),
            real: Ambient::system(),
            sandbox: Arc::default(),
        },
        enrolling: Arc::new(Semaphore::new(ENROLLING_AT_ONCE)),
        nodes: BTreeMap::new(),
        tasks: TaskTracker::new(),
        stop: stop.child_token(),
    };
    let mut list = JoinFile::new(&options.join);
    let mut looks = tokio::time::interval(LOOK_AT_LIST);
    let mut summaries = tokio::time::interval(options.summary_every.max(Duration::from_secs(1)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    summaries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!(list = %options.join.display(), seed = options.plan.seed, faults = ?options.plan.faults, "playing simulated nodes");
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = looks.tick() => match list.changed() {
                Ok(None) => {}
                Ok(Some(entries)) => fleet.follow(entries),
                // Somebody may be in the middle of replacing it; it is looked at again.
                Err(error) => tracing::warn!(%error, "the list of nodes cannot be used"),
            },
            _ = summaries.tick() => {
                fleet.conclude("simulated nodes", options.report.as_deref())?;
            }
        }
    }
    fleet.tasks.close();
    fleet.stop.cancel();
    if tokio::time::timeout(STOP_LIMIT, fleet.tasks.wait()).await.is_err() {
        tracing::warn!("some nodes did not stop in time");
    }
    fleet.conclude("stopped", options.report.as_deref())
}

struct Fleet {
    around: Surroundings,
    enrolling: Arc<Semaphore>,
    nodes: BTreeMap<NodeId, (tokio::sync::watch::Sender<Known>, CancellationToken)>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Fleet {
    /// New nodes begin to live, known ones learn what is new, those that are gone end.
    fn follow(&mut self, entries: Vec<Entry>) {
        let listed: BTreeSet<NodeId> = entries.iter().map(|entry| entry.join.node_id).collect();
        self.nodes.retain(|node, (_, stop)| {
            let stays = listed.contains(node);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for (number, entry) in (0..).zip(entries) {
            let node = entry.join.node_id;
            let known = Known { join: entry.join, token: entry.token };
            if let Some((told, _)) = self.nodes.get(&node) {
                told.send_replace(known);
                continue;
            }
            let hostname = known.join.hostname.clone();
            let (told, knows) = tokio::sync::watch::channel(known);
            let stop = self.stop.child_token();
            let made = match SimNode::new(&self.around, &hostname, number, entry.profile, node) {
                Ok(made) => made,
                Err(error) => {
                    tracing::error!(node = %hostname, %error, "the state of a node cannot be used; it stays away");
                    continue;
                }
            };
            self.tasks.spawn(made.live(knows, self.enrolling.clone(), stop.clone()));
            self.nodes.insert(node, (told, stop));
            self.around.counters.nodes.add();
        }
    }

    /// Says and writes down what has happened so far.
    fn conclude(&self, text: &str, path: Option<&Path>) -> anyhow::Result<Report> {
        let report = self.around.counters.report();
        tracing::info!(
            nodes = self.nodes.len(),
            connected = report.connected,
            enrolled = report.enrolled,
            heartbeats = report.heartbeats,
            tasks = report.tasks_distinct,
            tasks_repeated = report.tasks_repeated,
            results_told = report.results_told,
            restarts = report.restarts,
            "{text}"
        );
        if let Some(path) = path {
            let written = serde_json::to_vec_pretty(&report)?;
            replace(path, &written).with_context(|| format!("cannot write the report {}", path.display()))?;
        }
        Ok(report)
    }
}
