//! The one place that starts other programs.

use std::process::{Command, Stdio};

/// Asks the desktop to open an address. It may fail silently: the address is printed as well.
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
