//! Small files: read with a bound, written so that a crash leaves the old one or the new one.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::{Mode, OFlags};

/// Reads at most `limit` bytes of a file and says whether there was more. For files that programs or the kernel
/// make up, whose size is not known beforehand.
pub fn read_bounded(path: &Path, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    // Opening a pipe that somebody put there must not wait for its other end.
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut bytes)?;
    let more = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, more))
}

/// Writes a small file of the agent's own so that it is either the old or the new one, also after a crash.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let dir = path.parent().ok_or_else(|| io::Error::other("a file has a directory"))?;
    let name = path.file_name().ok_or_else(|| io::Error::other("a file has a name"))?;
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = dir.join(temporary);
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(dir)?.sync_all()
}
