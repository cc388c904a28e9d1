//! The one place that starts programs on a PTY.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use node_proto::grant::Grant;
use node_tunnel::Refusal;
use pty_process::{Command, OwnedReadPty, OwnedWritePty, Size};
use tokio::process::Child;

use crate::{
    cgroup::SessionCgroup,
    processes::{MARKER, Processes},
};

/// What a session runs.
#[derive(Clone, Debug)]
pub struct Shell {
    /// An absolute path.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment, besides `TERM`, `LANG` (both can be set here) and the marker of the session.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The user to whom the PTY belongs, as after a login: who cannot open their own terminal cannot write to `/dev/stderr`.
    /// Without one it is the agent's user.
    pub terminal_owner: Option<u32>,
}

/// Says what a session of a grant's owner runs.
#[async_trait]
pub trait Shells: Send + Sync + 'static {
    async fn shell(&self, grant: &Grant) -> Result<Shell, Refusal>;
}

/// A terminal has this size until the client says another.
const COLUMNS: u16 = 80;
const ROWS: u16 = 24;
const SH: &str = "/bin/sh";
/// Enters the control group before it becomes the program: nothing that this starts is ever outside.
const ENTER_CGROUP: &str = r#"echo 0 2>/dev/null >"$0"; exec "$@""#;
/// A disk that answers later is taken for one that never does.
const DISK: Duration = Duration::from_secs(5);

/// Held while a PTY is opened and its program started. The PTY is not closed on `exec` from the first moment on: without this,
/// the program of another session could inherit it.
static STARTING: Mutex<()> = Mutex::new(());

/// A program that runs. Dropped, it is killed with all that it started.
pub(crate) struct Program {
    // The first to be dropped: as long as the child was not waited for, its number is no other's.
    pub processes: Processes,
    pub child: Child,
    pub output: OwnedReadPty,
    pub input: OwnedWritePty,
}

impl Program {
    /// Starts it as the leader of its own session, with the PTY as its controlling terminal.
    pub async fn start(shell: Shell, marker: String) -> io::Result<Self> {
        if !shell.program.is_absolute() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the program is not an absolute path"));
        }
        // A network disk that hangs must not hang the start of all others.
        require_answer(&shell.cwd).await?;
        require_answer(&shell.program).await?;
        tokio::task::spawn_blocking(move || spawn(shell, &marker)).await.map_err(io::Error::other)?
    }
}

async fn require_answer(path: &Path) -> io::Result<()> {
    match tokio::time::timeout(DISK, tokio::fs::metadata(path)).await {
        Ok(found) => found.map(|_| ()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn spawn(shell: Shell, marker: &str) -> io::Result<Program> {
    let _alone = STARTING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
    pty.resize(Size::new(ROWS, COLUMNS)).map_err(io::Error::other)?;
    if let Some(user) = shell.terminal_owner {
        let path = rustix::pty::ptsname(&pty, Vec::new())?;
        std::os::unix::fs::chown(OsStr::from_bytes(path.to_bytes()), Some(user), None)?;
    }
    let cgroup = SessionCgroup::create(marker);
    let command = match &cgroup {
        Some(cgroup) => {
            Command::new(SH).args(["-c", ENTER_CGROUP]).arg(cgroup.entrance()).arg(&shell.program)
        }
        None => Command::new(&shell.program),
    };
    let child = command
        .args(&shell.args)
        .env_clear()
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .envs(shell.env)
        .env(MARKER, marker)
        .current_dir(&shell.cwd)
        .kill_on_drop(true)
        .spawn(pts);
    let child = child.map_err(|error| {
        if let Some(cgroup) = &cgroup {
            cgroup.remove();
        }
        io::Error::other(error)
    })?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok());
    let processes = Processes::new(leader, marker, cgroup.into_iter().collect());
    let (output, input) = pty.into_split();
    Ok(Program { processes, child, output, input })
}
