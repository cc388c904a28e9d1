//! The agent: how large it is, and what it takes while there is nothing to do.

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{Bench, operator::NewNode};
use crate::{cpu, exec};

/// Long enough for its first reports and whatever onboarding asks of it.
const IDLE_AFTER: Duration = Duration::from_secs(25);
const WINDOW: Duration = Duration::from_secs(20);

impl Bench {
    pub async fn agent(&mut self) -> anyhow::Result<()> {
        let program = self.agent_program()?;
        let bytes = std::fs::metadata(&program)?.len();
        self.report.figure(
            "agent: size of the static program",
            format!("{:.1} MB", bytes as f64 / 1e6),
            "< 15 MB",
        );
        let dir = self.product.dir.path().join("agent");
        std::fs::create_dir_all(&dir)?;
        let config = dir.join("agent.toml");
        std::fs::write(&config, format!("state_dir = \"{}\"\n", dir.join("state").display()))?;
        let node = self.operator.create("bench-agent").await?;
        let command = || {
            let mut command = exec::command(&program);
            command.arg("--config").arg(&config);
            command
        };
        let mut enroll = command();
        enroll.args(enroll_arguments(&node)?);
        exec::output_with(enroll, format!("{}\n", node.token)).await?;

        let mut run = command();
        run.arg("run").stdout(Stdio::null()).stderr(std::fs::File::create(dir.join("log"))?);
        let agent = exec::Running::start(run)?;
        tokio::time::sleep(IDLE_AFTER).await;
        let (before, begun) = (cpu::process_micros(agent.pid()), Instant::now());
        tokio::time::sleep(WINDOW).await;
        let spent = cpu::process_micros(agent.pid()).saturating_sub(before) as f64;
        let resident = cpu::resident_kib(agent.pid());
        anyhow::ensure!(resident > 0, "the agent ended: {}", std::fs::read_to_string(dir.join("log"))?);
        self.report.figure(
            "agent: resident memory, enrolled and idle",
            format!("{:.1} MB", resident as f64 * 1024.0 / 1e6),
            "< 20 MB",
        );
        let share = spent / 1e4 / begun.elapsed().as_secs_f64();
        self.report.figure("agent: CPU, enrolled and idle", format!("{share:.2} % of a core"), "");
        Ok(())
    }

    /// What was named, or the newest that `make agent` left beside our build.
    fn agent_program(&self) -> anyhow::Result<PathBuf> {
        self.options.agent.clone().map_or_else(newest_static, Ok)
    }
}

/// The newest that `make agent` left beside our build.
pub fn newest_static() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let agents = own.ancestors().nth(2).context("no target directory")?.join("agents");
    let advice = || format!("there is no agent in {}: run `make agent` first", agents.display());
    let mut found: Vec<_> = std::fs::read_dir(&agents).with_context(advice)?.flatten().collect();
    found.sort_by_key(|file| file.metadata().and_then(|meta| meta.modified()).ok());
    found.pop().map(|file| file.path()).with_context(advice)
}

/// With these a new node's agent joins; it reads the token from its standard input.
pub fn enroll_arguments(node: &NewNode) -> anyhow::Result<Vec<String>> {
    let said = |name: &str| node.join[name].as_str().with_context(|| format!("a node without {name}"));
    let roots = node.join["root_sha256"].as_array().into_iter().flatten().filter_map(|root| root.as_str());
    let roots = roots.collect::<Vec<_>>().join(",");
    let pairs = [
        ("--url", said("url")?),
        ("--node-id", &node.id),
        ("--hostname", said("hostname")?),
        ("--root-sha256", &roots),
        ("--keyset-key", said("keyset_key")?),
    ];
    let pairs = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
    Ok(std::iter::once("enroll".to_owned()).chain(pairs).collect())
}
