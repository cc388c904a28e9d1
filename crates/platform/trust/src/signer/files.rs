//! Files that only we can read: checked when opened, written whole or not at all.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;
use zeroize::{Zeroize as _, Zeroizing};

use super::CustodyError;

const DIRECTORY: u32 = 0o700;
pub(super) const PRIVATE: u32 = 0o600;
pub(super) const PUBLIC: u32 = 0o644;
/// No file of ours is larger.
const FILE_BYTES: usize = 4096;

pub(super) fn failed(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> CustodyError {
    let path = path.to_owned();
    move |source| CustodyError::Io { path, doing, source }
}

/// The directory, made when it is missing; refused when others can look into it.
pub(super) fn directory(path: &Path) -> Result<(), CustodyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY)
        .create(path)
        .map_err(failed(path, "making the directory"))?;
    let metadata = fs::symlink_metadata(path).map_err(failed(path, "looking at the directory"))?;
    if !metadata.is_dir() {
        return Err(CustodyError::Kind { path: path.to_owned(), expected: "a directory" });
    }
    check(path, &metadata, DIRECTORY)
}

/// Its content, or nothing when there is no such file. `mode` is the widest that is taken.
pub(super) fn read(path: &Path, mode: u32) -> Result<Option<Zeroizing<Vec<u8>>>, CustodyError> {
    let opened =
        OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits()).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, "opening")(error)),
    };
    let metadata = file.metadata().map_err(failed(path, "looking at the file"))?;
    if !metadata.is_file() {
        return Err(CustodyError::Kind { path: path.to_owned(), expected: "a file" });
    }
    check(path, &metadata, mode)?;
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut content = Zeroizing::new(vec![0; FILE_BYTES]);
    let mut length = 0;
    loop {
        match file.read(&mut content[length..]).map_err(failed(path, "reading"))? {
            0 => break,
            more => length += more,
        }
    }
    if length == FILE_BYTES {
        return Err(CustodyError::Content { path: path.to_owned() });
    }
    content.truncate(length);
    Ok(Some(content))
}

/// Makes the file, whole and on disk, unless it is there already; true when it was made here.
pub(super) fn create(path: &Path, content: &[u8], mode: u32) -> Result<bool, CustodyError> {
    let draft = draft(path, content, mode)?;
    // A hard link does not replace: of two processes that start together, one wins.
    let linked = fs::hard_link(&draft, path);
    let removed = fs::remove_file(&draft);
    match linked {
        Ok(()) => {
            removed.map_err(failed(&draft, "removing the draft"))?;
            sync_directory(path)?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(path, "linking")(error)),
    }
}

/// Puts the file in the place of what was there.
pub(super) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), CustodyError> {
    let draft = draft(path, content, mode)?;
    fs::rename(&draft, path).map_err(failed(path, "replacing"))?;
    sync_directory(path)
}

/// Overwrites and removes. The overwriting is an attempt: what a disk keeps is not ours to say.
pub(super) fn destroy(path: &Path) -> Result<(), CustodyError> {
    let opened = OpenOptions::new().write(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path);
    match opened {
        Ok(mut file) => {
            let length = file.metadata().map_or(0, |m| usize::try_from(m.len()).unwrap_or(0));
            let zeros = vec![0; length.min(FILE_BYTES)];
            let _ = file.write_all(&zeros).and_then(|()| file.sync_all());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path, "opening")(error)),
    }
    fs::remove_file(path).map_err(failed(path, "removing"))?;
    sync_directory(path)
}

fn draft(path: &Path, content: &[u8], mode: u32) -> Result<PathBuf, CustodyError> {
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| CustodyError::Make)?;
    let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    random.zeroize();
    let draft = path.with_extension(format!("draft-{suffix}"));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()
    };
    match write() {
        Ok(()) => Ok(draft),
        Err(error) => {
            let _ = fs::remove_file(&draft);
            Err(failed(&draft, "writing")(error))
        }
    }
}

fn sync_directory(path: &Path) -> Result<(), CustodyError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed(parent, "syncing"))
}

fn check(path: &Path, metadata: &fs::Metadata, widest: u32) -> Result<(), CustodyError> {
    let expected = nix::unistd::geteuid().as_raw();
    let trusted_public = widest == PUBLIC && metadata.uid() == 0;
    if metadata.uid() != expected && !trusted_public {
        return Err(CustodyError::Owner { path: path.to_owned(), owner: metadata.uid(), expected });
    }
    let mode = metadata.mode() & 0o777;
    if mode & !widest != 0 {
        return Err(CustodyError::Permissions { path: path.to_owned(), mode, wanted: widest });
    }
    Ok(())
}
