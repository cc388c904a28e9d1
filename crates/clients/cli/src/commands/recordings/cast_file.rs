//! Where an asciicast goes.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use kernel::Ambient;

use crate::{
    failure::{Failure, Result, local},
    output::write_bytes,
};

/// A file has another name until all of it is there and good, and is removed if that does not happen. What cannot be renamed
/// is written at once: standard output, pipes and devices.
pub enum CastFile {
    Stdout,
    Stream(fs::File, PathBuf),
    Renamed(NewFile),
}

/// Beside the file that it becomes.
pub struct NewFile {
    file: fs::File,
    temporary: PathBuf,
    path: PathBuf,
    is_kept: bool,
}

impl CastFile {
    /// `-` is standard output.
    pub fn open(name: &str, ambient: &Ambient) -> Result<Self> {
        if name == "-" {
            return Ok(Self::Stdout);
        }
        let named = Path::new(name);
        let failed = |error| unwritable(named, &error);
        match fs::metadata(named) {
            Ok(found) if !found.is_file() => {
                let file = fs::OpenOptions::new().write(true).open(named).map_err(failed)?;
                Ok(Self::Stream(file, named.to_owned()))
            }
            Ok(found) => {
                // A link stays a link, and the file keeps its mode.
                let path = fs::canonicalize(named).map_err(failed)?;
                let new = NewFile::create(path, ambient)?;
                new.file.set_permissions(found.permissions()).map_err(failed)?;
                Ok(Self::Renamed(new))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self::Renamed(NewFile::create(named.to_owned(), ambient)?))
            }
            Err(error) => Err(failed(error)),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result {
        match self {
            Self::Stdout => write_bytes(bytes),
            Self::Stream(file, path) => file.write_all(bytes).map_err(|error| unwritable(path, &error)),
            Self::Renamed(new) => new.file.write_all(bytes).map_err(|error| unwritable(&new.path, &error)),
        }
    }

    /// All of it is there. Whether there is a file now.
    pub fn rename_into_place(self) -> Result<bool> {
        match self {
            Self::Stdout => Ok(false),
            Self::Stream(..) => Ok(true),
            Self::Renamed(mut new) => {
                let kept = new.file.sync_all().and_then(|()| fs::rename(&new.temporary, &new.path));
                kept.map_err(|error| unwritable(&new.path, &error))?;
                new.is_kept = true;
                Ok(true)
            }
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    local(format!("{} cannot be written", path.display()))(error)
}

impl NewFile {
    fn create(path: PathBuf, ambient: &Ambient) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", ambient.uuid().simple()));
        let temporary = path.with_file_name(name);
        // A new file, so that no symbolic link is followed.
        let file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|error| unwritable(&path, &error))?;
        Ok(Self { file, temporary, path, is_kept: false })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
