//! Third-party programs that tests use, installed by `scripts/tools.sh`, and one place to run them.

use std::{
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).canonicalize().expect("the repository")
}

/// A file under `.tools`; missing means that the promised part was not installed.
pub fn tool(path: &str) -> PathBuf {
    let file = root().join(".tools").join(path);
    assert!(file.exists(), "{} is missing: `make test` installs it (scripts/tools.sh)", file.display());
    file
}

// Programs are started here, and only here.
#[allow(clippy::disallowed_methods)]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// Runs to the end, within a limit.
pub async fn run(mut command: Command, limit: Duration) -> Output {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let pid = child.id();
    let work = tokio::task::spawn_blocking(move || child.wait_with_output());
    match tokio::time::timeout(limit, work).await {
        Ok(output) => output.expect("join").expect("output"),
        Err(_) => {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
            panic!("{command:?} took longer than {limit:?}");
        }
    }
}

/// A background program, killed when dropped.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
