//! Files that are there completely, or as they were before; and a directory that is closed to others.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

/// Replaces the file; when this returns, the new content survives a loss of power.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (dir, name) = match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => (dir, name.to_string_lossy()),
        _ => return Err(io::Error::other("not the path of a file")),
    };
    let draft = dir.join(format!(".{name}.tmp"));
    let outcome = write_draft(&draft, content).and_then(|()| fs::rename(&draft, path));
    if outcome.is_err() {
        // A draft that stays behind is overwritten by the next one.
        let _ = fs::remove_file(&draft);
    }
    outcome?;
    sync_dir(dir)
}

fn write_draft(draft: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Removes the file, if it is there, for good.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    path.parent().map_or(Ok(()), sync_dir)
}

pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes the directory if need be, and refuses one that others could look into or write to.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let meta = fs::metadata(dir)?;
    if !meta.is_dir() {
        return Err(io::Error::other("it is not a directory"));
    }
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user; chown it to the agent's user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("it is open to other users; chmod it to 0700"));
    }
    Ok(())
}

/// Reads a file of at most `largest` bytes; `None` when there is none.
pub fn read(path: &Path, largest: u64) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(meta) if meta.len() > largest => {
            Err(io::Error::other(format!("it is larger than {largest} bytes")))
        }
        Ok(_) => fs::read(path).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_replaced_whole_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(read(&path, 3).unwrap().unwrap(), b"two");
        assert!(read(&path, 2).is_err());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(read(&path, 3).unwrap(), None);
    }

    #[test]
    fn an_open_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private_dir(dir.path()).is_err());
        let made = dir.path().join("deep/state");
        private_dir(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
    }
}
