//! The process that plays simulated nodes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::REGION;
use crate::exec;

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub struct Simulator {
    program: PathBuf,
    dir: PathBuf,
    running: Option<exec::Running>,
}

/// What the nodes say about themselves.
pub struct Told(Value);

impl Told {
    pub fn count(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }

    /// From the signing of a task to its beginning on the node, in milliseconds.
    pub fn start_latency_ms(&self, quantile: &str) -> f64 {
        self.0["start_latency_us"][quantile].as_f64().unwrap_or(0.0) / 1000.0
    }
}

impl Simulator {
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("gpuaas-node-sim");
        anyhow::ensure!(program.exists(), "build it first: cargo build --release -p node-sim");
        std::fs::create_dir_all(dir)?;
        Ok(Self { program, dir: dir.to_owned(), running: None })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes nodes `first` to `last` through the API.
    pub async fn create(&self, server: &str, token: &str, first: u32, last: u32) -> anyhow::Result<()> {
        std::fs::write(self.file("token"), token)?;
        let mut command = exec::command(&self.program);
        command.args(["create", "--server", server, "--region", REGION, "--prefix", "bench"]);
        command.args(["--first", &first.to_string(), "--count", &(last + 1 - first).to_string()]);
        command.arg("--token-file").arg(self.file("token")).arg("--join").arg(self.file("join.json"));
        exec::output(command).await?;
        Ok(())
    }

    /// The ids of all nodes, as paths name them.
    pub fn nodes(&self) -> anyhow::Result<Vec<String>> {
        let list: Value = serde_json::from_slice(&std::fs::read(self.file("join.json"))?)?;
        let ids = list.as_array().into_iter().flatten().filter_map(|node| node["join"]["node_id"].as_str());
        Ok(ids.map(str::to_owned).collect())
    }

    pub fn start(&mut self) -> anyhow::Result<()> {
        let _ = std::fs::remove_file(self.file("report.json"));
        let mut command = exec::command(&self.program);
        command.args(["run", "--summary-seconds", "1"]).env("GPUAAS_LOG", "warn");
        command.arg("--join").arg(self.file("join.json")).arg("--state").arg(self.file("state"));
        command.arg("--report").arg(self.file("report.json"));
        command.stdout(Stdio::null()).stderr(std::fs::File::create(self.file("log"))?);
        self.running = Some(exec::Running::start(command)?);
        Ok(())
    }

    /// Lets all nodes end what they do.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// The nodes do nothing from now on, and do not know it.
    pub fn hold(&self) -> anyhow::Result<()> {
        self.running.as_ref().map_or(Ok(()), |running| running.signal(Signal::SIGSTOP))
    }

    pub fn let_go(&self) -> anyhow::Result<()> {
        self.running.as_ref().map_or(Ok(()), |running| running.signal(Signal::SIGCONT))
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().map_or(0, exec::Running::pid)
    }

    /// The figures of the last second.
    pub fn last_report(&self) -> Option<Told> {
        serde_json::from_slice(&std::fs::read(self.file("report.json")).ok()?).ok().map(Told)
    }

    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn(&Told) -> bool,
    ) -> anyhow::Result<Told> {
        let begun = Instant::now();
        loop {
            let told = self.last_report();
            match told {
                Some(told) if is_so(&told) => return Ok(told),
                last if begun.elapsed() > limit => {
                    let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
                    let log: String = log.chars().take(2000).collect();
                    anyhow::bail!("{what}: not after {limit:?}; {:?}\n{log}", last.map(|told| told.0));
                }
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// The figures after everything that has happened until now.
    pub async fn latest(&self) -> anyhow::Result<Told> {
        let _ = std::fs::remove_file(self.file("report.json"));
        self.until("figures of the simulated nodes", Duration::from_secs(20), |_| true)
            .await
            .context("they are written every second")
    }
}
