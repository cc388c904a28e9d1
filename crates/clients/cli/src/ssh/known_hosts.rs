//! The host keys of one machine, as ssh reads them. One file for each machine, so that several programs can write at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kernel::Ambient;

use super::machine::Machine;
use crate::{config::replace_file, failure::Result};

pub fn known_hosts_file(directory: &Path, id: &str) -> PathBuf {
    directory.join("ssh").join(format!("{id}.known_hosts"))
}

/// Only these keys are the machine's.
pub fn known_hosts_write(directory: &Path, machine: &Machine, ambient: &Ambient) -> Result {
    let path = known_hosts_file(directory, &machine.id);
    let text: String = machine.host_keys.iter().map(|key| format!("{} {key}\n", machine.id)).collect();
    if fs::read(&path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    replace_file(&path, text.as_bytes(), 0o600, ambient)
}
