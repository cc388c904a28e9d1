//! What this process remembers of the installation outside the database: a private file, replaced as a whole.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use pg::Outside;

use crate::config::Config;

#[derive(Debug, thiserror::Error)]
pub enum OutsideFileError {
    #[error(
        "{path} is not what was written there; if the database was restored run `gpuaasd restore`, otherwise delete the file"
    )]
    Malformed { path: String },
    #[error("{path} cannot be read or written; server.data_dir must be a directory of this process")]
    Io {
        path: String,
        #[source]
        error: io::Error,
    },
}

/// The generation last committed to the database, and identifiers that must never come back.
#[derive(Clone, Debug)]
pub struct OutsideFile(PathBuf);

impl OutsideFile {
    pub fn new(config: &Config) -> Self {
        Self(config.server.data_dir.join("secrets").join("generation.json"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Nothing when there is no file.
    pub fn read(&self) -> Result<Option<Outside>, OutsideFileError> {
        let bytes = match fs::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let malformed = |_| OutsideFileError::Malformed { path: self.0.display().to_string() };
        serde_json::from_slice(&bytes).map(Some).map_err(malformed)
    }

    /// A crash leaves the earlier file or this one, never a part.
    pub fn write(&self, outside: &Outside) -> Result<(), OutsideFileError> {
        self.replace(outside).map_err(|error| self.failed(error))
    }

    fn replace(&self, outside: &Outside) -> io::Result<()> {
        let directory = self.0.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // Of this process alone: another one with the same directory has its own.
        let next = self.0.with_extension(format!("new-{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(&serde_json::to_vec(outside)?)?;
        file.sync_all()?;
        fs::rename(&next, &self.0)?;
        fs::File::open(directory)?.sync_all()
    }

    fn failed(&self, error: io::Error) -> OutsideFileError {
        OutsideFileError::Io { path: self.0.display().to_string(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_anything_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = OutsideFile(dir.path().join("secrets/generation.json"));
        assert!(file.read().unwrap().is_none());
        let outside = |generation| Outside {
            installation: uuid::Uuid::from_u128(1),
            generation,
            identifiers: serde_json::json!({ "uid_block": 20_000 }),
            restore_owed: (generation == 2).then(|| "it went back".to_owned()),
        };
        for generation in [1, 2] {
            file.write(&outside(generation)).unwrap();
            assert_eq!(file.read().unwrap(), Some(outside(generation)));
        }
        assert_eq!(fs::read_dir(dir.path().join("secrets")).unwrap().count(), 1);
        fs::write(file.path(), "{").unwrap();
        assert!(matches!(file.read(), Err(OutsideFileError::Malformed { .. })));
    }
}
