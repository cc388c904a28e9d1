//! Which accounts are the agent's: one small file each in the state directory, written before the account is
//! made and removed after nothing is left of it. It survives a crash at any step, and says whose the account is
//! even when its user has changed the account's description.

use std::{
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use node_proto::catalog::AccountSpec;
use serde::{Deserialize, Serialize};

use crate::{
    atomic,
    drivers::{Done, DriverError, files::read_bounded},
};

const RECORD_BYTES: usize = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub username: String,
    pub uid: u32,
    pub gid: u32,
    pub owner: String,
    /// The keys that may be in the managed block.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Its removal has begun, and must be finished.
    #[serde(default)]
    pub removing: bool,
    /// Ids of its containers, remembered because removing the account forgets them.
    #[serde(default)]
    pub subordinate_ids: Vec<(u32, u32)>,
}

impl Record {
    pub fn new(account: &AccountSpec, owner: &str) -> Self {
        Self {
            username: account.username.clone(),
            uid: account.uid,
            gid: account.gid,
            owner: owner.to_owned(),
            keys: Vec::new(),
            removing: false,
            subordinate_ids: Vec::new(),
        }
    }
}

pub struct Registry {
    dir: PathBuf,
}

impl Registry {
    pub fn new(state_dir: &Path) -> Self {
        Self { dir: state_dir.join("host") }
    }

    fn path(&self, username: &str) -> PathBuf {
        self.dir.join(format!("{username}.json"))
    }

    pub fn read(&self, username: &str) -> Done<Option<Record>> {
        read(&self.path(username))
    }

    pub fn write(&self, record: &Record) -> Done<()> {
        let path = self.path(&record.username);
        let write = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            atomic::write(&path, &serde_json::to_vec(record)?)
        };
        write().map_err(|error: io::Error| {
            DriverError::failed(format!("{} cannot be written: {error}", path.display()))
        })
    }

    pub fn remove(&self, username: &str) -> Done<()> {
        match std::fs::remove_file(self.path(username)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DriverError::failed(format!("the record of {username} cannot be removed: {error}")))
            }
            _ => Ok(()),
        }
    }

    pub fn all(&self) -> Done<Vec<Record>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| {
                DriverError::failed(format!("{} cannot be read: {error}", self.dir.display()))
            })?,
        };
        let mut records = Vec::new();
        for entry in entries.flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if !hidden && entry.path().extension().is_some_and(|e| e == "json") {
                records.extend(read(&entry.path())?);
            }
        }
        records.sort_by(|a: &Record, b| a.username.cmp(&b.username));
        Ok(records)
    }
}

fn read(path: &Path) -> Done<Option<Record>> {
    let bytes = match read_bounded(path, RECORD_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => {
            other
                .map_err(|error| DriverError::failed(format!("{} cannot be read: {error}", path.display())))?
                .0
        }
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| DriverError::failed(format!("{} is damaged: {error}", path.display())))
}
