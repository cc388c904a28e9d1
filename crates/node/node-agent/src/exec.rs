//! The one place that starts programs.
//!
//! A program is named by its absolute path and gets a vector of arguments, an environment of two variables, a
//! process group of its own, a time limit and a bound on what it may print. There is no shell. When the time is
//! up, or the program has ended, everything that it left in its process group is killed. Each run is logged.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

use crate::{drivers::DriverError, redact::redact};

pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
pub const DEFAULT_OUTPUT_BYTES: usize = 256 * 1024;
/// How long a program's output is waited for after it has ended: something that left the group may hold it open.
const DRAIN: Duration = Duration::from_millis(200);
/// How much of what a failed program printed goes into the error.
const SHOWN_CHARS: usize = 400;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("{0} is not an absolute path; name programs by their full path")]
    Relative(PathBuf),
    #[error("{0} is not installed; install it or correct its path in the configuration")]
    Missing(PathBuf),
    #[error("{program} could not be started: {error}")]
    Start { program: PathBuf, error: io::Error },
    #[error("{program} did not end within {seconds} s and was killed")]
    TimedOut { program: PathBuf, seconds: u64 },
    #[error("talking to {program} failed: {error}")]
    Talk { program: PathBuf, error: io::Error },
    #[error("{program} failed ({status}): {output}")]
    Failed { program: PathBuf, status: String, output: String },
}

impl From<ExecError> for DriverError {
    fn from(error: ExecError) -> Self {
        match &error {
            ExecError::TimedOut { .. } => {
                Self::new(node_proto::contract::FailureCode::Timeout, error.to_string())
            }
            ExecError::Missing(_) => {
                Self::new(node_proto::contract::FailureCode::Unavailable, error.to_string())
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// It printed more than was kept.
    pub truncated: bool,
    pub duration: Duration,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// One run of one program.
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    stdin: Vec<u8>,
    timeout: Duration,
    output_bytes: usize,
    quiet: bool,
}

impl Run {
    pub fn new(program: &Path) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            stdin: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            output_bytes: DEFAULT_OUTPUT_BYTES,
            quiet: false,
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The bound of each of the two outputs.
    pub fn output_bytes(mut self, bytes: usize) -> Self {
        self.output_bytes = bytes;
        self
    }

    /// For what is run with every heartbeat: only what goes wrong is worth a line that everybody sees.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Runs it to its end, whatever that is.
    pub fn run(self) -> Result<Ran, ExecError> {
        let started = Instant::now();
        let result = self.attend(started);
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let args = self.args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let (program, args) = (self.program.display(), redact(&args));
        match &result {
            Ok(ran) if self.quiet && ran.status.success() => {
                tracing::debug!(%program, args, duration_ms, status = %ran.status, "program ran");
            }
            Ok(ran) => tracing::info!(%program, args, duration_ms, status = %ran.status, "program ran"),
            Err(error) => {
                tracing::warn!(%program, args, duration_ms, %error, "program did not run to its end")
            }
        }
        result
    }

    /// Runs it, and takes any status but zero for an error.
    pub fn succeed(self) -> Result<Ran, ExecError> {
        let program = self.program.clone();
        let ran = self.run()?;
        if ran.status.success() {
            return Ok(ran);
        }
        let said = if ran.stderr.is_empty() { &ran.stdout } else { &ran.stderr };
        let output = redact(String::from_utf8_lossy(said).trim()).chars().take(SHOWN_CHARS).collect();
        Err(ExecError::Failed { program, status: ran.status.to_string(), output })
    }

    fn attend(&self, started: Instant) -> Result<Ran, ExecError> {
        if !self.program.is_absolute() {
            return Err(ExecError::Relative(self.program.clone()));
        }
        let talk = |error: io::Error| ExecError::Talk { program: self.program.clone(), error };
        let mut group = Group { child: self.spawn()? };
        let pid = Pid::from_child(&group.child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| talk(e.into()))?;
        let mut stdin = match group.child.stdin.take() {
            Some(pipe) if !self.stdin.is_empty() => Some(quick(pipe.into()).map_err(talk)?),
            _ => None,
        };
        let mut unsent = self.stdin.as_slice();
        let mut out = [
            Sink::new(group.child.stdout.take().map(Into::into), self.output_bytes).map_err(talk)?,
            Sink::new(group.child.stderr.take().map(Into::into), self.output_bytes).map_err(talk)?,
        ];
        let mut deadline = started + self.timeout;
        let mut over = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (over && out.iter().all(|sink| sink.pipe.is_none())) {
                break;
            }
            let mut fds = Vec::with_capacity(4);
            if !over {
                fds.push(PollFd::new(&ended, PollFlags::IN));
            }
            if let Some(pipe) = &stdin {
                fds.push(PollFd::new(pipe, PollFlags::OUT));
            }
            for pipe in out.iter().filter_map(|sink| sink.pipe.as_ref()) {
                fds.push(PollFd::new(pipe, PollFlags::IN));
            }
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(talk(error.into())),
            }
            let just_ended = !over && fds.first().is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            send(&mut stdin, &mut unsent);
            for sink in &mut out {
                sink.take().map_err(talk)?;
            }
            if just_ended {
                // Not reaped yet, so the group's number cannot be another's.
                let _ = kill_process_group(pid, Signal::KILL);
                (over, deadline, stdin) = (true, Instant::now() + DRAIN, None);
            }
        }
        if !over {
            return Err(ExecError::TimedOut {
                program: self.program.clone(),
                seconds: self.timeout.as_secs(),
            });
        }
        let status = group.child.wait().map_err(talk)?;
        let [stdout, stderr] = out;
        Ok(Ran {
            status,
            truncated: stdout.truncated || stderr.truncated,
            stdout: stdout.kept,
            stderr: stderr.kept,
            duration: started.elapsed(),
        })
    }

    // The one place.
    #[allow(clippy::disallowed_methods)]
    fn spawn(&self) -> Result<Child, ExecError> {
        let stdin = if self.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
        Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir("/")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => ExecError::Missing(self.program.clone()),
                _ => ExecError::Start { program: self.program.clone(), error },
            })
    }
}

/// Whatever way its run is left, the program and its group are dead and reaped afterwards.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Keeps the first bytes of an output and lets the rest pass.
struct Sink {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Sink {
    fn new(pipe: Option<OwnedFd>, limit: usize) -> io::Result<Self> {
        Ok(Self { pipe: pipe.map(quick).transpose()?, kept: Vec::new(), limit, truncated: false })
    }

    /// Takes what is there; at most some buffers at a time, so that both outputs get their turn.
    fn take(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        for _ in 0..16 {
            let Some(pipe) = &self.pipe else { return Ok(()) };
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    let room = self.limit.saturating_sub(self.kept.len()).min(read);
                    self.kept.extend(buffer.iter().take(room));
                    self.truncated |= room < read;
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A program may end or close its input before it has read everything: that is its own business.
fn send(stdin: &mut Option<OwnedFd>, unsent: &mut &[u8]) {
    let Some(pipe) = stdin else { return };
    match rustix::io::write(&*pipe, unsent) {
        Ok(sent) => *unsent = unsent.get(sent..).unwrap_or_default(),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
        Err(_) => *unsent = &[],
    }
    if unsent.is_empty() {
        *stdin = None;
    }
}

fn quick(pipe: OwnedFd) -> io::Result<OwnedFd> {
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
    Ok(pipe)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
