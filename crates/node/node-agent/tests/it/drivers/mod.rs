//! The real drivers against made-up trees, fake tools, and a real machine in namespaces.

mod devices;
mod diag;
mod exec;
mod gpu;
mod logs;
mod machine;
mod real_host;
mod slices;
mod ssh_streams;
mod terminal_kit;
mod terminals;
mod tree;
mod unprivileged;

use std::sync::Mutex;

use node_agent::drivers::{Done, DriverError, Steps};

/// Notes the phases; stops at one if told to.
#[derive(Default)]
pub struct Noted {
    pub seen: Mutex<Vec<&'static str>>,
    pub stop_at: Option<String>,
}

impl Steps for Noted {
    fn begin(&self, phase: &'static str) -> Done<()> {
        self.seen.lock().unwrap().push(phase);
        if self.stop_at.as_deref() == Some(phase) {
            return Err(DriverError::failed("stopped by the test"));
        }
        Ok(())
    }
}

/// Polls until it holds, for a bounded time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
