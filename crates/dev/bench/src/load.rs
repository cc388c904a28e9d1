//! Clients: pgbench against the socket, wrk against HTTP. Both say how many operations they did.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exec;

pub const CLIENTS: u32 = 8;

pub fn find_pgbench() -> anyhow::Result<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed")?
        .flatten()
        .map(|version| version.path().join("bin/pgbench"))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().context("pgbench is missing: install the package postgresql-contrib or postgresql")
}

/// Operations per second of a pgbench script, as the given database role.
pub async fn pgbench(
    bin: &Path,
    socket_dir: &str,
    settings: &str,
    script: &Path,
    (clients, seconds): (u32, u32),
) -> anyhow::Result<f64> {
    let mut command = exec::command(bin);
    command
        .args(["-n", "-M", "prepared", "-j", "1", "-U", "gpuaas_app", "-h", socket_dir])
        .args(["-c", &clients.to_string(), "-T", &seconds.to_string(), "-f"])
        .arg(script)
        .arg("gpuaas")
        .env("PGOPTIONS", settings);
    let text = exec::output(command).await?;
    number_after(&text, "tps = ").with_context(|| format!("no tps in: {text}"))
}

/// Requests per second of wrk; any answer other than 2xx fails the run.
pub async fn wrk(
    url: &str,
    headers: &[String],
    script: Option<&Path>,
    (clients, seconds): (u32, u32),
) -> anyhow::Result<f64> {
    let mut command = exec::command("wrk");
    command.args(["-t", "1", "-c", &clients.to_string(), "-d", &format!("{seconds}s")]);
    for header in headers {
        command.args(["-H", header]);
    }
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    command.arg(url);
    let text = exec::output(command).await?;
    anyhow::ensure!(!text.contains("Non-2xx"), "wrk got refusals from {url}: {text}");
    number_after(&text, "Requests/sec:").with_context(|| format!("no rate in: {text}"))
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text[text.find(label)? + label.len()..].trim_start();
    rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?.parse().ok()
}
