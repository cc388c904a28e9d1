//! Which slots are whose: one small file each in the state directory, written before anything is touched and
//! removed after nothing is left.

use std::{
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use node_proto::catalog::VmProvisionInput;
use serde::{Deserialize, Serialize};

use crate::{
    atomic,
    drivers::{Done, DriverError},
};

const LEASE_BYTES: u64 = 4 * 1024 * 1024;

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It was begun; what of it is there is not known.
    Making,
    /// It was proved to work.
    Ready,
    /// Its release has begun, and must be finished.
    Releasing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub stage: Stage,
    /// As it was asked for.
    pub wanted: VmProvisionInput,
}

impl Lease {
    /// Whether the same machine is asked for again; its keys may be others.
    pub fn is_for(&self, input: &VmProvisionInput) -> bool {
        let keys = self.wanted.authorized_keys.clone();
        self.wanted == VmProvisionInput { authorized_keys: keys, ..input.clone() }
    }
}

/// Where leases are kept. A write is durable when it returns.
pub trait Leases: Send + Sync {
    fn all(&self) -> Done<Vec<Lease>>;
    fn write(&self, lease: &Lease) -> Done<()>;
    /// What is not there is not an error.
    fn remove(&self, owner: &str) -> Done<()>;
}

pub struct FileLeases {
    dir: PathBuf,
}

impl FileLeases {
    pub fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("slices") }
    }

    /// Owners are plain names: they were checked.
    fn path(&self, owner: &str) -> PathBuf {
        self.dir.join(format!("{owner}.json"))
    }
}

impl Leases for FileLeases {
    fn all(&self) -> Done<Vec<Lease>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| cannot("read", &self.dir, &error))?,
        };
        let mut leases = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", &self.dir, &error))?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if !hidden && path.extension().is_some_and(|extension| extension == "json") {
                leases.extend(read(&path)?);
            }
        }
        leases.sort_by(|a: &Lease, b| a.wanted.owner.cmp(&b.wanted.owner));
        Ok(leases)
    }

    fn write(&self, lease: &Lease) -> Done<()> {
        let path = self.path(&lease.wanted.owner);
        let write = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            atomic::write(&path, &serde_json::to_vec(lease)?)
        };
        write().map_err(|error: io::Error| cannot("written", &path, &error))
    }

    fn remove(&self, owner: &str) -> Done<()> {
        let path = self.path(owner);
        atomic::remove(&path).map_err(|error| cannot("removed", &path, &error))
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> DriverError {
    DriverError::failed(format!("the lease {} cannot be {what}: {error}", path.display()))
}

/// A lease that cannot be read stops everything: it may be of any slot.
fn read(path: &Path) -> Done<Option<Lease>> {
    let bytes = atomic::read(path, LEASE_BYTES).map_err(|error| cannot("read", path, &error))?;
    let lease = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
    lease.map_err(|error| DriverError::failed(format!("the lease {} is damaged: {error}", path.display())))
}
