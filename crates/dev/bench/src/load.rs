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

/// Operations per second of a pgbench script, as the database role of requests.
pub async fn pgbench(
    bin: &Path,
    socket_dir: &str,
    settings: &str,
    script: &Path,
    load: (u32, u32),
) -> anyhow::Result<f64> {
    let mut command = exec::command(bin);
    command.args(["-U", "gpuaas_app"]).env("PGOPTIONS", settings);
    run_pgbench(command, socket_dir, script, load).await
}

/// The same as the database role of workers, with variables of the script.
pub async fn pgbench_as_system(
    bin: &Path,
    socket_dir: &str,
    variables: &[(&str, &str)],
    script: &Path,
    load: (u32, u32),
) -> anyhow::Result<f64> {
    let mut command = exec::command(bin);
    command.args(["-U", "gpuaas_system"]);
    for (name, value) in variables {
        command.args(["-D", &format!("{name}={value}")]);
    }
    run_pgbench(command, socket_dir, script, load).await
}

async fn run_pgbench(
    mut command: std::process::Command,
    socket_dir: &str,
    script: &Path,
    (clients, seconds): (u32, u32),
) -> anyhow::Result<f64> {
    command
        .args(["-n", "-M", "prepared", "-j", "1", "-h", socket_dir])
        .args(["-c", &clients.to_string(), "-T", &seconds.to_string(), "-f"])
        .arg(script)
        .arg("gpuaas");
    let text = exec::output(command).await?;
    number_after(&text, "tps = ").with_context(|| format!("no tps in: {text}"))
}

/// Requests per second of wrk; any answer other than 2xx fails the run.
pub async fn wrk(
    url: &str,
    headers: &[String],
    script: Option<&Path>,
    load: (u32, u32),
) -> anyhow::Result<f64> {
    Ok(wrk_timed(url, headers, script, load).await?.0)
}

/// The same, and the time that half of the requests took at most, in milliseconds.
pub async fn wrk_timed(
    url: &str,
    headers: &[String],
    script: Option<&Path>,
    (clients, seconds): (u32, u32),
) -> anyhow::Result<(f64, f64)> {
    let mut command = exec::command("wrk");
    command.args(["--latency", "-t", "1", "-c", &clients.to_string(), "-d", &format!("{seconds}s")]);
    for header in headers {
        command.args(["-H", header]);
    }
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    command.arg(url);
    let text = exec::output(command).await?;
    anyhow::ensure!(!text.contains("Non-2xx"), "wrk got refusals from {url}: {text}");
    let rate = number_after(&text, "Requests/sec:").with_context(|| format!("no rate in: {text}"))?;
    let times = text.split_once("Latency Distribution").map_or("", |(_, times)| times);
    let half = milliseconds_after(times, "50%").with_context(|| format!("no latency in: {text}"))?;
    Ok((rate, half))
}

fn milliseconds_after(text: &str, label: &str) -> Option<f64> {
    let number = number_after(text, label)?;
    let rest = text[text.find(label)? + label.len()..].trim_start();
    let unit = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let factor = match unit.get(..2)? {
        "us" => 1e-3,
        "ms" => 1.0,
        _ if unit.starts_with('s') => 1e3,
        _ => return None,
    };
    Some(number * factor)
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text[text.find(label)? + label.len()..].trim_start();
    rest.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_read_in_their_units() {
        let text = "\n     50%  741.00us\n     75%    1.20ms\n     99%    2.01s \n";
        assert_eq!(milliseconds_after(text, "50%").map(|ms| (ms * 1e3).round()), Some(741.0));
        assert_eq!(milliseconds_after(text, "75%"), Some(1.2));
        assert_eq!(milliseconds_after(text, "99%"), Some(2.01 * 1e3));
        assert_eq!(milliseconds_after(text, "90%"), None);
    }
}
