//! Simulated nodes at a gateway of a few lines, as the tests here play them.

use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use kernel::ids::{NodeId, TaskId};
use node_proto::{
    catalog::{
        Collect, CollectInput, CollectPart, Drain, DrainInput, TopologyDiscover, TopologyDiscoverInput,
    },
    contract::{Ending, FailureCode},
};
use node_sim::{
    plan::{Extents, Faults, Plan},
    report::Report,
    run::{Options, run},
};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

const PATIENCE: Duration = Duration::from_secs(90);

/// Simulated nodes at a gateway of a few lines.
pub struct Sim {
    pub gateway: Gateway,
    pub nodes: Vec<NodeId>,
    pub dir: tempfile::TempDir,
    running: Option<(CancellationToken, JoinHandle<anyhow::Result<Report>>)>,
}

impl Sim {
    pub async fn start(count: usize, plan: Plan) -> Self {
        let gateway = Gateway::start().await;
        let dir = tempfile::tempdir().unwrap();
        let (nodes, list): (Vec<NodeId>, Vec<Value>) =
            (0..count).map(|number| gateway.entry(number, ["h200-8", "mi300x-8", "cpu"][number % 3])).unzip();
        std::fs::write(dir.path().join("join.json"), Value::Array(list).to_string()).unwrap();
        let mut sim = Self { gateway, nodes, dir, running: None };
        sim.play(plan);
        sim
    }

    pub fn play(&mut self, plan: Plan) {
        let path = |name: &str| -> PathBuf { self.dir.path().join(name) };
        let options = Options {
            join: path("join.json"),
            state: path("state"),
            plan,
            report: Some(path("report.json")),
            summary_every: Duration::from_secs(5),
        };
        let stop = CancellationToken::new();
        self.running = Some((stop.clone(), tokio::spawn(run(options, stop))));
    }

    pub async fn stop(&mut self) -> Report {
        let (stop, running) = self.running.take().unwrap();
        stop.cancel();
        running.await.unwrap().unwrap()
    }

    /// Queues `count` tasks of several kinds for every node.
    pub fn queue(&self, count: usize) -> Vec<TaskId> {
        let queue = |node: NodeId, number: usize| match number % 3 {
            0 => self.gateway.queue::<TopologyDiscover>(node, &TopologyDiscoverInput {}),
            1 => self.gateway.queue::<Collect>(node, &CollectInput { parts: vec![CollectPart::KernelLog] }),
            _ => self.gateway.queue::<Drain>(node, &DrainInput { reason: "test".to_owned() }),
        };
        self.nodes.iter().flat_map(|&node| (0..count).map(move |number| queue(node, number))).collect()
    }

    pub async fn all_end(&self, tasks: &[TaskId]) {
        until("every task ends", async || tasks.iter().all(|id| self.gateway.ending(*id).is_some())).await;
    }

    /// However often a result was told, it was the same. Only what was never begun because the disk was full
    /// cannot be kept, and may be told otherwise after a crash; the first counts.
    pub fn assert_one_ending(&self, tasks: &[TaskId]) {
        for id in tasks {
            let mut results = self.gateway.results(*id);
            results.dedup();
            if matches!(&results[0].ending, Ending::Failed { failure } if failure.code == FailureCode::Journal)
            {
                continue;
            }
            assert_eq!(results.len(), 1, "{id}: {results:?}");
        }
    }
}

pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Another seed may be tried from outside; the usual one makes the run repeatable.
pub fn quick(faults: Faults) -> Plan {
    let extents =
        Extents { delay_ms: 50, disk_full_ms: 200, flap_ms: 500, restart_ms: 20, ..Extents::default() };
    let seed = std::env::var("GPUAAS_SIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    Plan { seed, faults, extents, phase_ms: "0..5".parse().unwrap(), ..Plan::default() }
}
