//! Reading secrets from files. A file that other users can read is refused, whatever it holds: by the time somebody
//! notices, the secret is known.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use kernel::Secret;

/// No secret of ours is longer.
const LARGEST: u64 = 64 * 1024;
const OTHERS: u32 = 0o077;

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error(
        "{path} holds a secret and other users can reach it (mode {mode:o}); make it private: chmod 600 {path}"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path} holds a secret and belongs to user {owner}; only this program's user ({expected}) or root may own it: chown {expected} {path}"
    )]
    Owner { path: PathBuf, owner: u32, expected: u32 },
    #[error("{path} is empty or longer than 64 KiB; it must hold the secret")]
    Length { path: PathBuf },
    #[error("{path} cannot be read")]
    Io {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// The whole file. The checks are made on the opened file, so that nobody can exchange it between check and reading.
pub fn read(path: &Path) -> Result<Secret<String>, SecretFileError> {
    let io = |error| SecretFileError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    check(path, &metadata)?;
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text).map_err(io)?;
    if text.trim().is_empty() || u64::try_from(read).unwrap_or(u64::MAX) > LARGEST {
        return Err(SecretFileError::Length { path: path.to_owned() });
    }
    Ok(Secret::new(text))
}

/// The first line of the file, without white space around it.
pub fn read_line(path: &Path) -> Result<Secret<String>, SecretFileError> {
    let text = read(path)?;
    let line = text.expose().trim().lines().next().unwrap_or_default().trim().to_owned();
    Ok(Secret::new(line))
}

/// Whether only this program's user can reach an open file. A group that a secrets manager gives is not asked for: who
/// is in it is not known here.
pub fn check(path: &Path, metadata: &std::fs::Metadata) -> Result<(), SecretFileError> {
    let (owner, expected) = (metadata.uid(), nix::unistd::geteuid().as_raw());
    if owner != expected && owner != 0 {
        return Err(SecretFileError::Owner { path: path.to_owned(), owner, expected });
    }
    let mode = metadata.mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(SecretFileError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn only_a_private_file_is_read() {
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            let (_dir, path) = file("s3cret\n", mode);
            let error = read_line(&path).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && !error.contains("s3cret"), "{error}");
        }
        for mode in [0o600, 0o400] {
            let (_dir, path) = file("\n s3cret \nmore\n", mode);
            assert_eq!(read_line(&path).unwrap().expose(), "s3cret");
        }
        let (_dir, path) = file(" \n", 0o600);
        assert!(matches!(read(&path), Err(SecretFileError::Length { .. })));
    }
}
