//! The one place that starts programs. Every program has a time limit, bounded output, and ends when we are
//! told to.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::interrupt;

/// More than any gate prints; a program that says more is cut off.
const OUTPUT_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// How long the output may take to arrive after the program has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// How long a program may take to end by itself before it is asked harder.
const END_LIMIT: Duration = Duration::from_secs(15);

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
    let mut command = command(dir, program, args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {program}; is it installed?"))?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let status = wait(&mut child, program, args, limit)?;
    Ok(Ran { ok: status.success(), stdout: drained(stdout, program)?, stderr: drained(stderr, program)? })
}

/// Runs `program` on our own terminal, with more environment; gives its exit code.
pub fn show(
    dir: &Path,
    program: &str,
    args: &[&str],
    environment: &[(&str, &str)],
    limit: Duration,
) -> anyhow::Result<u8> {
    let mut command = command(dir, program, args);
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("start {program}; is it installed?"))?;
    let status = wait(&mut child, program, args, limit)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn command(dir: &Path, program: &str, args: &[&str]) -> Command {
    // The rule "processes are started in one place per program" means this line.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| PER_CRATE_VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        {
            command.env_remove(&name);
        }
    }
    command
}

fn wait(child: &mut Child, program: &str, args: &[&str], limit: Duration) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().with_context(|| format!("wait for {program}"))? {
            return Ok(status);
        }
        if let Some(signal) = interrupt::received() {
            end(child, signal).with_context(|| format!("stop {program}"))?;
            bail!("{program} was stopped by {signal}");
        }
        if Instant::now() >= deadline {
            child.kill().with_context(|| format!("stop {program}"))?;
            child.wait().with_context(|| format!("wait for {program}"))?;
            bail!("{program} {} took longer than {} s and was stopped", args.join(" "), limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// Passes a signal on. A terminal has already sent Ctrl-C to the child too, and a second one would make it hurry.
fn end(child: &mut Child, signal: Signal) -> anyhow::Result<()> {
    let steps: &[Option<Signal>] = match signal {
        Signal::SIGINT => &[None, Some(Signal::SIGTERM)],
        _ => &[Some(Signal::SIGTERM)],
    };
    for step in steps {
        if let Some(signal) = step {
            // Not reaped yet, so the id is still the child's.
            let _ = kill(Pid::from_raw(i32::try_from(child.id())?), *signal);
        }
        let deadline = Instant::now() + END_LIMIT;
        while Instant::now() < deadline {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(())
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
