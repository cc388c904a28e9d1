//! The private directory of the unix socket.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::PORT;
use super::error::BuiltinError;
use super::user::RunAs;

/// The kernel's limit on a socket's path, without the closing zero.
const SOCKET_PATH_MAX: usize = 107;

/// Makes the directory (in the data directory, or under the temporary one when that path is too long) and
/// proves that only the server's user can use it.
pub(super) fn prepare(root: &Path, user: &RunAs) -> Result<PathBuf, BuiltinError> {
    let dir = choose(root, &std::env::temp_dir())?;
    match DirBuilder::new().mode(0o700).create(&dir) {
        Ok(()) => user.chown(&dir)?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(BuiltinError::io("create", dir)(error)),
    }
    verify(&dir, user)?;
    Ok(dir)
}

fn choose(root: &Path, temp: &Path) -> Result<PathBuf, BuiltinError> {
    let near = root.join("run");
    if fits(&near) {
        return Ok(near);
    }
    let name = format!("gpuaas-pg-{:016x}", fnv1a(root.as_os_str().as_encoded_bytes()));
    let far = temp.join(name);
    if fits(&far) { Ok(far) } else { Err(BuiltinError::SocketPathTooLong { path: far }) }
}

fn fits(dir: &Path) -> bool {
    dir.as_os_str().len() + format!("/.s.PGSQL.{PORT}").len() <= SOCKET_PATH_MAX
}

/// A directory that was already there may be someone else's trap: it must be a real directory (not a link),
/// owned by the server's user, and closed to everyone else.
fn verify(dir: &Path, user: &RunAs) -> Result<(), BuiltinError> {
    let seen = std::fs::symlink_metadata(dir).map_err(BuiltinError::io("look at", dir))?;
    let unsafe_because = |why| Err(BuiltinError::UnsafeSocketDir { path: dir.to_owned(), why });
    if !seen.is_dir() {
        return unsafe_because("it is not a directory");
    }
    if seen.uid() != user.uid() {
        // Root may have died between making it and giving it away. Nobody but root can own that one.
        if seen.uid() != 0 || !nix::unistd::geteuid().is_root() {
            return unsafe_because("it belongs to another user");
        }
        user.chown(dir)?;
    }
    if seen.mode() & 0o077 != 0 {
        return unsafe_because("other users can enter it");
    }
    Ok(())
}

/// A hash that stays the same for ever, which the standard library's does not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_data_directory_gets_a_short_socket_directory_of_its_own() {
        let temp = Path::new("/t");
        let short = choose(Path::new("/var/lib/gpuaas"), temp).expect("fits");
        assert_eq!(short, Path::new("/var/lib/gpuaas/run"));
        let long = PathBuf::from(format!("/{}", "x".repeat(120)));
        let first = choose(&long, temp).expect("falls back");
        let second = choose(&long.join("y"), temp).expect("falls back");
        assert!(first.starts_with(temp) && fits(&first));
        assert_ne!(first, second);
        assert!(matches!(choose(&long, &long), Err(BuiltinError::SocketPathTooLong { .. })));
    }

    #[test]
    fn planted_socket_directory_is_refused() {
        let temp = tempfile::tempdir().expect("temp dir");
        let user = RunAs::Current { uid: nix::unistd::geteuid().as_raw() };
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).expect("link");
        assert!(matches!(verify(&link, &user), Err(BuiltinError::UnsafeSocketDir { .. })));
        let open = temp.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).expect("dir");
        assert!(matches!(verify(&open, &user), Err(BuiltinError::UnsafeSocketDir { .. })));
        let private = temp.path().join("private");
        DirBuilder::new().mode(0o700).create(&private).expect("dir");
        verify(&private, &user).expect("private is fine");
        if user.uid() == 0 {
            std::os::unix::fs::chown(&private, Some(12_345), None).expect("chown");
            assert!(matches!(verify(&private, &user), Err(BuiltinError::UnsafeSocketDir { .. })));
        }
    }
}
