//! The list of nodes to be, as the control plane writes it: where each goes, what it pins, and its token when
//! it needs one. Tokens are used once and short-lived, so the list is read again whenever it changes.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use kernel::Secret;
use node_agent::drivers::simulated::Profile;
use node_proto::contract::JoinInfo;
use serde::Deserialize;

const LARGEST_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// One node of the list.
pub struct Entry {
    pub join: JoinInfo,
    /// Absent when the node needs none: it has a certificate.
    pub token: Option<Secret<String>>,
    pub profile: Profile,
}

#[derive(Deserialize)]
struct Written {
    join: JoinInfo,
    #[serde(default)]
    token: Option<String>,
    profile: String,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot read the list of nodes {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("the list of nodes {path} is not valid: {problem}")]
    Invalid { path: PathBuf, problem: String },
}

/// The file, and which state of it was read last.
pub struct JoinFile {
    path: PathBuf,
    read: Option<(SystemTime, u64)>,
}

impl JoinFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole list when it is new or has changed. A file that is not there yet is an empty list.
    pub fn changed(&mut self) -> Result<Option<Vec<Entry>>, JoinError> {
        let cannot = |error| JoinError::Read { path: self.path.clone(), error };
        let state = match std::fs::metadata(&self.path) {
            Ok(meta) if meta.len() > LARGEST_FILE_BYTES => {
                return Err(cannot(io::Error::other("it is larger than 64 MiB")));
            }
            Ok(meta) => (meta.modified().map_err(cannot)?, meta.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(error)),
        };
        if self.read == Some(state) {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&self.path).map_err(cannot)?;
        let entries =
            read(&text).map_err(|problem| JoinError::Invalid { path: self.path.clone(), problem })?;
        self.read = Some(state);
        Ok(Some(entries))
    }
}

fn read(text: &str) -> Result<Vec<Entry>, String> {
    // What serde says names places, never values: a token cannot get into a message.
    let written: Vec<Written> = serde_json::from_str(text)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    let entry =
        |w: Written| Ok(Entry { join: w.join, token: w.token.map(Secret::new), profile: w.profile.parse()? });
    written.into_iter().map(entry).collect()
}
