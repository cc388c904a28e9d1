//! Many nodes: connected and reporting, and given work.

use std::{
    fmt::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    Bench,
    simulator::{Simulator, Told},
};
use crate::{cpu, load, report::Sample};

/// More than so many are enrolled and not taken further: that is measured with fewer, and takes its time.
const ONBOARDED: u32 = 1000;
/// Nobody follows what happens in the fleet, and so nothing but what is asked for is queued.
const WITHOUT_ONBOARDING: [&str; 2] = ["--roles", "api,outbox-relay,node-gateway,node-log-gateway"];
/// For nodes to enrol, to be looked over, approved and probed.
const ONBOARDING: Duration = Duration::from_secs(900);
const CONNECTING: Duration = Duration::from_secs(180);
const STEADY: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(4);
/// Between two timed tasks: the one before is over.
const PACE: Duration = Duration::from_millis(20);
const WORK: &str = r#"{"parts":["mounts"]}"#;

/// For each number of nodes.
pub const STEPS: usize = 3;

/// CPU of all that take part, and what the nodes have reported, at one moment.
struct Moment {
    at: Instant,
    cpu: [u64; 3],
    told: Told,
}

/// CPU microseconds per second that nodes cost that only report.
type Idle = [f64; 3];

impl Bench {
    pub async fn connected(&mut self) -> anyhow::Result<()> {
        let mut simulator = Simulator::new(&self.product.dir.path().join("simulator"))?;
        let mut before = 0;
        for count in self.options.nodes.clone() {
            self.report.step(&format!("{count} nodes are made"));
            self.onboard(&mut simulator, before, count).await?;
            before = count;
            self.report.step(&format!("{count} nodes report"));
            let idle = self.report_only(&mut simulator, count).await?;
            self.report.step(&format!("{count} nodes get tasks, one after the other and many at once"));
            self.timed_tasks(&simulator, count).await?;
            self.many_tasks(&simulator, count, idle).await?;
            simulator.stop();
        }
        Ok(())
    }

    /// Makes nodes until there are `count`, and waits until all are in service, or enrolled when they are many.
    async fn onboard(&mut self, simulator: &mut Simulator, before: u32, count: u32) -> anyhow::Result<()> {
        let all_the_way = count <= ONBOARDED;
        self.product.stop();
        self.product.start(if all_the_way { &["--roles", "all"] } else { &WITHOUT_ONBOARDING }).await?;
        self.operator.refresh().await?;
        let begun = Instant::now();
        simulator.create(&self.product.base, self.operator.token(), before + 1, count).await?;
        let created = begun.elapsed().as_secs_f64();
        simulator.start()?;
        let mut db = self.product.database().await?;
        loop {
            let there: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM nodes WHERE simulated AND (state = 'active' OR (state = 'enrolling' AND NOT $1))",
            )
            .bind(all_the_way)
            .fetch_one(&mut db)
            .await?;
            if there == i64::from(count) {
                break;
            }
            anyhow::ensure!(begun.elapsed() < ONBOARDING, "only {there} of {count} nodes were ready in time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let made = f64::from(count - before);
        let all = begun.elapsed().as_secs_f64();
        self.report.figure(
            &format!(
                "{made:.0} nodes created through the API, enrolled, discovered, approved, probed, active"
            ),
            format!("{all:.0} s ({:.0} nodes/s; created at {:.0}/s)", made / all, made / created),
            "",
        );
        simulator.stop();
        Ok(())
    }

    async fn moment(&self, simulator: &Simulator) -> anyhow::Result<Moment> {
        let told = simulator.latest().await?;
        let cpu = [
            cpu::process_micros(self.product.pid()),
            cpu::family_micros(self.product.postmaster()),
            cpu::process_micros(simulator.pid()),
        ];
        Ok(Moment { at: Instant::now(), cpu, told })
    }

    /// Memory and CPU of nodes that do nothing but wait and report.
    async fn report_only(&mut self, simulator: &mut Simulator, count: u32) -> anyhow::Result<Idle> {
        self.product.stop();
        self.product.start(&WITHOUT_ONBOARDING).await?;
        self.operator.refresh().await?;
        self.operator.api().get("/api/v1/platform/nodes").await.expect(200);
        tokio::time::sleep(SETTLE).await;
        let empty = cpu::resident_kib(self.product.pid());

        simulator.start()?;
        let (nodes, begun) = (u64::from(count), Instant::now());
        let all = |told: &Told| told.count("connected") >= nodes && told.count("heartbeats") >= nodes;
        simulator.until("all nodes are connected", CONNECTING, all).await?;
        let connected = begun.elapsed().as_secs_f64();
        let twice = |told: &Told| told.count("heartbeats") >= 2 * nodes;
        simulator.until("all nodes report", CONNECTING, twice).await?;
        let (before, idle) = (self.moment(simulator).await?, tokio::time::sleep(STEADY));
        idle.await;
        let after = self.moment(simulator).await?;
        let full = cpu::resident_kib(self.product.pid());

        let heartbeats = (after.told.count("heartbeats") - before.told.count("heartbeats")) as f64;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let spent: Vec<f64> =
            before.cpu.iter().zip(after.cpu).map(|(b, a)| a.saturating_sub(*b) as f64).collect();
        let each = |n: usize| spent[n] / heartbeats;
        let sample = Sample {
            per_second: heartbeats / seconds,
            product_cpu: each(0),
            postgres_cpu: each(1),
            client_cpu: each(2),
        };
        self.report.compare(&format!("heartbeat (every 10 s) and waiting, {count} nodes"), sample, &[]);
        let per_node = full.saturating_sub(empty) as f64 * 1.024 / f64::from(count);
        self.report.figure(
            &format!("{count} nodes connected and reporting: resident memory of gpuaasd per node"),
            format!(
                "{per_node:.1} KB (from {:.0} MB to {:.0} MB; {} connections; all there after {connected:.0} s)",
                empty as f64 / 1024.0,
                full as f64 / 1024.0,
                after.told.count("connected"),
            ),
            "< 40 KB",
        );
        Ok([spent[0] / seconds, spent[1] / seconds, spent[2] / seconds])
    }

    /// One task after the other on nodes that wait: from its signing to its start on the node.
    async fn timed_tasks(&mut self, simulator: &Simulator, count: u32) -> anyhow::Result<()> {
        let nodes = simulator.nodes()?;
        let earlier = simulator.latest().await?.count("tasks_started");
        anyhow::ensure!(earlier == 0, "{earlier} tasks were started before the first was timed");
        for n in 0..self.options.samples as usize {
            // A large prime visits the nodes in no order that they were made in.
            let node = &nodes[n * 7919 % nodes.len()];
            let path = format!("/api/v1/platform/nodes/{node}/collect");
            self.operator.api().post(&path, serde_json::from_str(WORK)?).await.expect(202);
            tokio::time::sleep(PACE).await;
        }
        let wanted = u64::from(self.options.samples);
        let done = |told: &Told| told.count("results_told") >= wanted;
        let told = simulator.until("timed tasks", Duration::from_secs(60), done).await?;
        anyhow::ensure!(told.count("tasks_started") == wanted, "other tasks came in between");
        let ms = |quantile| told.start_latency_ms(quantile);
        self.report.figure(
            &format!("task signed → started on the node, {count} idle nodes, {wanted} tasks"),
            format!(
                "p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                ms("p50"),
                ms("p90"),
                ms("p99"),
                ms("max")
            ),
            "p50 < 5 ms, p99 < 50 ms",
        );
        Ok(())
    }

    /// As many tasks as the API takes, until all results are kept.
    async fn many_tasks(&mut self, simulator: &Simulator, count: u32, idle: Idle) -> anyhow::Result<()> {
        let script = self.tasks_script(&simulator.nodes()?)?;
        let before = self.moment(simulator).await?;
        load::wrk(&self.product.base, &[], Some(&script), (load::CLIENTS, self.seconds)).await?;
        let mut db = self.product.database().await?;
        let limit = Instant::now() + Duration::from_secs(120);
        loop {
            let open: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM node_tasks t JOIN nodes n ON n.id = t.node_id
                 WHERE n.simulated AND t.state IN ('queued', 'dispatched', 'running')",
            )
            .fetch_one(&mut db)
            .await?;
            if open == 0 {
                break;
            }
            anyhow::ensure!(Instant::now() < limit, "{open} tasks are open still");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let seconds = before.at.elapsed().as_secs_f64();
        let after = self.moment(simulator).await?;
        let tasks = (after.told.count("results_told") - before.told.count("results_told")) as f64;
        anyhow::ensure!(after.told.count("tasks_repeated") == 0, "a task ran twice");
        let window = after.at.duration_since(before.at).as_secs_f64();
        let each = |n: usize| {
            let spent = after.cpu[n].saturating_sub(before.cpu[n]) as f64;
            (spent - idle[n] * window).max(0.0) / tasks
        };
        let sample = Sample {
            per_second: tasks / seconds,
            product_cpu: each(0),
            postgres_cpu: each(1),
            client_cpu: each(2),
        };
        let name = format!(
            "task: queued, handed out, run, result kept; {count} nodes, {} clients (without heartbeats' CPU)",
            load::CLIENTS
        );
        self.report.compare(&name, sample, &[]);
        Ok(())
    }

    fn tasks_script(&self, nodes: &[String]) -> anyhow::Result<PathBuf> {
        let mut list = String::new();
        for node in nodes {
            let _ = write!(list, "'{node}',");
        }
        let token = self.operator.token();
        let text = format!(
            "local nodes = {{ {list} }}
math.randomseed(os.time())
local headers = {{ ['authorization'] = 'Bearer {token}', ['content-type'] = 'application/json' }}
request = function()
  return wrk.format('POST', '/api/v1/platform/nodes/' .. nodes[math.random(#nodes)] .. '/collect', headers, '{WORK}')
end
"
        );
        let path = self.product.dir.path().join("tasks.lua");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}
