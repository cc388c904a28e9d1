//! The one place that starts programs. Every program has a time limit and bounded output.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// More than any gate prints; a program that says more is cut off.
const OUTPUT_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// How long the output may take to arrive after the program has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// What cargo tells a program it runs. A cargo below us must not see it, or build scripts that watch these
/// variables run again and rebuild half the workspace.
const PER_CRATE_VARIABLES: [&str; 6] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "OUT_DIR"];

pub struct Ran {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `program` in `dir` to its end, or kills it when `limit` has passed.
pub fn run(dir: &Path, program: &str, args: &[&str], limit: Duration) -> anyhow::Result<Ran> {
    // The rule "processes are started in one place per program" means this line.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| PER_CRATE_VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn().with_context(|| format!("start {program}; is it installed?"))?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);

    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("wait for {program}"))? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill().with_context(|| format!("stop {program}"))?;
            child.wait().with_context(|| format!("wait for {program}"))?;
            bail!("{program} {} took longer than {} s and was stopped", args.join(" "), limit.as_secs());
        }
        thread::sleep(POLL);
    };
    Ok(Ran { ok: status.success(), stdout: drained(stdout, program)?, stderr: drained(stderr, program)? })
}

fn collect(pipe: impl Read + Send + 'static) -> Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let outcome = pipe.take(OUTPUT_LIMIT_BYTES).read_to_end(&mut bytes).map(|_| bytes);
        // Nobody listens any more when the program was stopped for its time limit.
        let _ = sender.send(outcome);
    });
    receiver
}

fn drained(pipe: Option<Receiver<std::io::Result<Vec<u8>>>>, program: &str) -> anyhow::Result<String> {
    let Some(pipe) = pipe else { return Ok(String::new()) };
    let bytes = pipe.recv_timeout(DRAIN_LIMIT).with_context(|| format!("read the output of {program}"))??;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_stopped_at_its_limit() {
        let start = Instant::now();
        let outcome = run(Path::new("."), "sleep", &["60"], Duration::from_millis(50));
        assert!(outcome.is_err_and(|error| error.to_string().contains("was stopped")));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_with_its_name() {
        let outcome = run(Path::new("."), "no-such-program-here", &[], Duration::from_secs(1));
        assert!(outcome.is_err_and(|error| error.to_string().contains("no-such-program-here")));
    }
}
