//! The one place that starts other programs.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use crate::failure::Failure;

/// Opens an address in the default browser. It may fail silently: the address is printed as well.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn open_browser(address: &str) {
    let started = Command::new("xdg-open")
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut child) = started {
        // Somebody has to take its exit status; it ends by itself or with us.
        std::thread::spawn(move || child.wait());
    }
}

/// Becomes the ssh client of this machine: the terminal and the exit code are its own. Comes back only when there is
/// none.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn become_ssh(arguments: &[String]) -> Failure {
    let error = Command::new("ssh").args(arguments).exec();
    Failure::client(format!("ssh cannot be started: {error}")).suggest("Install an OpenSSH client.")
}
