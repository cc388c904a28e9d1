//! Files of the kernel and of users, read with a bound.

use std::{
    io::{self, Read},
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
