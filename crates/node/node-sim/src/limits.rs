//! Thousands of nodes are thousands of open connections.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As many open files as this process may ever have.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most).map(|()| most));
    match raised {
        Ok(most) => tracing::debug!(most, "open files"),
        Err(error) => tracing::warn!(%error, "the number of open files cannot be raised"),
    }
}
