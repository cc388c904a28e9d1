//! The agent programs that this installation offers: files named `gpuaas-agent-<version>-<architecture>` in one
//! directory. A node asks for a program by its digest, so what it gets is what was announced or nothing.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::SystemTime,
};

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AgentProgram")]
pub struct Program {
    pub version: String,
    pub architecture: String,
    pub sha256: String,
    pub size_bytes: u64,
    #[serde(skip)]
    pub path: PathBuf,
}

const PREFIX: &str = "gpuaas-agent-";
const LARGEST: u64 = 100 * 1024 * 1024;
const MOST: usize = 64;

/// When a file was changed, how long it is, and its digest.
type Known = (SystemTime, u64, String);

/// Cheap to clone. The directory is read anew each time; digests are remembered while a file does not change.
#[derive(Clone)]
pub struct Programs {
    dir: PathBuf,
    digests: Arc<Mutex<HashMap<PathBuf, Known>>>,
}

impl Programs {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, digests: Arc::default() }
    }

    /// Newest version last. A directory that is not there offers nothing. Blocking: reads files.
    pub fn list(&self) -> io::Result<Vec<Program>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries.take(MOST * 4) {
            let path = entry?.path();
            if let Some((version, architecture)) =
                path.file_name().and_then(|n| n.to_str()).and_then(name_parts)
            {
                let (version, architecture) = (version.to_owned(), architecture.to_owned());
                if let Some((sha256, size_bytes)) = self.digest(&path)? {
                    found.push(Program { version, architecture, sha256, size_bytes, path });
                }
            }
        }
        found.sort_by(|a, b| {
            (&a.architecture, numbers(&a.version)).cmp(&(&b.architecture, numbers(&b.version)))
        });
        found.truncate(MOST);
        Ok(found)
    }

    /// The program with this digest. Blocking: reads files.
    pub fn find(&self, sha256: &str) -> io::Result<Option<Program>> {
        Ok(self.list()?.into_iter().find(|program| program.sha256 == sha256))
    }

    fn digest(&self, path: &Path) -> io::Result<Option<(String, u64)>> {
        let facts = std::fs::metadata(path)?;
        if !facts.is_file() || facts.len() > LARGEST {
            return Ok(None);
        }
        let (modified, size) = (facts.modified()?, facts.len());
        let mut digests = self.digests.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((at, length, digest)) = digests.get(path)
            && (*at, *length) == (modified, size)
        {
            return Ok(Some((digest.clone(), size)));
        }
        let digest = kernel::hex::encode(&Sha256::digest(std::fs::read(path)?));
        digests.insert(path.to_owned(), (modified, size, digest.clone()));
        Ok(Some((digest, size)))
    }
}

fn name_parts(name: &str) -> Option<(&str, &str)> {
    let (version, architecture) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._".contains(&b))
    };
    (plain(version) && plain(architecture)).then_some((version, architecture))
}

/// `0.10.2` comes after `0.9`.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_their_content_and_follow_changes() {
        let dir = tempfile::tempdir().unwrap();
        let programs = Programs::new(dir.path().join("none"));
        assert!(programs.list().unwrap().is_empty());
        let programs = Programs::new(dir.path().to_owned());
        for (name, content) in [
            ("gpuaas-agent-0.10.0-x86_64", "new"),
            ("gpuaas-agent-0.9.0-x86_64", "old"),
            ("gpuaas-agent-x86_64", "no version"),
            ("notes.txt", "other"),
        ] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let versions: Vec<String> = programs.list().unwrap().into_iter().map(|p| p.version).collect();
        assert_eq!(versions, ["0.9.0", "0.10.0"]);
        let digest = kernel::hex::encode(&Sha256::digest("old"));
        assert_eq!(programs.find(&digest).unwrap().unwrap().version, "0.9.0");
        std::fs::write(dir.path().join("gpuaas-agent-0.9.0-x86_64"), "changed").unwrap();
        assert_eq!(programs.find(&digest).unwrap(), None);
    }
}
