//! The one place of this module that starts processes: with a clean environment, as the right user, and with a
//! time limit on everything but the server itself.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::error::BuiltinError;
use super::user::RunAs;

/// What a server binary may see of our environment. The rest stays out: it can hold secrets and `PG*` variables.
const KEPT_VARIABLES: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// A command that runs `program` as `user`, in `/`, in a process group of its own (so that Ctrl-C in a terminal
/// reaches us and not the server, which must outlive our own draining).
///
/// The standard library drops all supplementary groups when root sets another user id.
// This is the one place that runs programs for the built-in server.
#[allow(clippy::disallowed_methods)]
pub(super) fn command(program: &Path, user: &RunAs) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for name in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let RunAs::User { uid, gid, .. } = user {
        command.uid(*uid).gid(*gid);
    }
    command
}

/// Runs a command to its end and returns what it printed; kills it at the limit.
pub(super) async fn run(mut command: Command, limit: Duration) -> Result<Output, BuiltinError> {
    let program = Path::new(command.as_std().get_program()).to_owned();
    let child = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| BuiltinError::Exec { program: program.clone(), source })?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Ok(output) => output.map_err(|source| BuiltinError::Exec { program, source }),
        Err(_) => Err(BuiltinError::ExecTimeout { program, seconds: limit.as_secs() }),
    }
}
