//! The one place that starts programs.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pty_process::blocking::Pty;

const LIMIT: Duration = Duration::from_secs(300);

// The programs of a benchmark are started here, and only here.
#[allow(clippy::disallowed_methods)]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// A child that is stopped when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let shown = format!("{command:?}");
        Ok(Self(command.stdin(Stdio::null()).spawn().with_context(|| format!("start {shown}"))?))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.0.id())?);
        kill(pid, signal).with_context(|| format!("send {signal} to process {pid}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal(Signal::SIGTERM);
        // One that is held hears it only when it goes on.
        let _ = self.signal(Signal::SIGCONT);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while std::time::Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program on a terminal of its own.
pub fn start_on_pty(program: &str, args: &[&str], dir: &Path) -> anyhow::Result<(Pty, Running)> {
    let (pty, pts) = pty_process::blocking::open()?;
    pty.resize(pty_process::Size::new(24, 80))?;
    let command = pty_process::blocking::Command::new(program).args(args).current_dir(dir);
    let child = command.spawn(pts).with_context(|| format!("start {program} on a terminal"))?;
    Ok((pty, Running(child)))
}

/// Runs to the end and gives standard output.
pub async fn output(command: Command) -> anyhow::Result<String> {
    output_with(command, String::new()).await
}

/// The same, with text on its standard input.
pub async fn output_with(mut command: Command, input: String) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let work = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    });
    let output =
        tokio::time::timeout(LIMIT, work).await.with_context(|| format!("{shown} took too long"))??;
    let output = output.with_context(|| format!("start {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
