//! The data directory: its lock, its owner, and the cluster in it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::discover::{Binaries, VERSION_LIMIT};
use super::error::BuiltinError;
use super::user::RunAs;
use super::{SUPERUSER, exec};

const PGDATA: &str = "pgdata";
/// A cluster being made. The part after the dot is random, so that an `initdb` orphaned by kill -9 can never
/// write into the directory of the next try.
const UNFINISHED: &str = "pgdata.init.";
/// `initdb` takes about two seconds; slow disks that must sync get much more.
const INITDB_LIMIT: Duration = Duration::from_secs(180);

/// Creates the data directory and returns its one true path.
pub(super) fn prepare_root(path: &Path, user: &RunAs) -> Result<PathBuf, BuiltinError> {
    if path.to_str().is_none() {
        return Err(BuiltinError::BadDataDir { path: path.to_owned(), why: "its path is not valid UTF-8" });
    }
    if !path.exists() {
        // The server's user must be able to pass through a directory that root owns, but not to list it.
        let mode = if matches!(user, RunAs::User { .. }) { 0o711 } else { 0o700 };
        create_with_parents(path, mode)?;
    }
    let root = std::fs::canonicalize(path).map_err(BuiltinError::io("resolve", path))?;
    if !root.is_dir() {
        return Err(BuiltinError::BadDataDir { path: root, why: "it is not a directory" });
    }
    if root.to_str().is_none() {
        return Err(BuiltinError::BadDataDir { path: root, why: "its path is not valid UTF-8" });
    }
    Ok(root)
}

/// Each directory that is missing, with this mode whatever the umask is: a parent that the server's user cannot pass
/// through would keep it from the data directory as well.
fn create_with_parents(path: &Path, mode: u32) -> Result<(), BuiltinError> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists()).collect();
    for part in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(part) {
            // `..`, or another process that starts.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(BuiltinError::io("create", part))?,
        }
        std::fs::set_permissions(part, std::fs::Permissions::from_mode(mode))
            .map_err(BuiltinError::io("set the mode of", part))?;
    }
    Ok(())
}

/// Takes the data directory for this process. The lock ends with the process, however it ends.
pub(super) fn lock(root: &Path) -> Result<Flock<File>, BuiltinError> {
    let path = root.join("lock");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(BuiltinError::io("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut held) => {
            // Only for the message that a second program gives.
            let noted = held.set_len(0).and_then(|()| write!(*held, "{}", std::process::id()));
            noted.map_err(BuiltinError::io("write", &path))?;
            Ok(held)
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let holder = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.is_empty() => format!("process {pid}"),
                _ => "process unknown".to_owned(),
            };
            Err(BuiltinError::InUse { root: root.to_owned(), holder })
        }
        Err((_, errno)) => Err(BuiltinError::Io { what: "lock", path, source: errno.into() }),
    }
}

/// The major version that made the cluster; `None` when there is no cluster yet.
pub(super) fn recorded_major(root: &Path) -> Result<Option<u32>, BuiltinError> {
    let pgdata = root.join(PGDATA);
    if is_absent_or_empty(&pgdata)? {
        return Ok(None);
    }
    let text = std::fs::read_to_string(pgdata.join("PG_VERSION"));
    match text.ok().and_then(|text| text.trim().parse().ok()) {
        Some(major) => Ok(Some(major)),
        None => Err(BuiltinError::NotACluster { pgdata }),
    }
}

fn is_absent_or_empty(dir: &Path) -> Result<bool, BuiltinError> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(BuiltinError::io("read", dir)(error)),
    }
}

/// Proves that the server's user can enter the data directory, by entering it as that user; names the
/// directory in the way when it cannot.
pub(super) async fn check_reach(root: &Path, user: &RunAs, binaries: &Binaries) -> Result<(), BuiltinError> {
    if matches!(user, RunAs::Current { .. }) || can_enter(root, user, binaries).await? {
        return Ok(());
    }
    let mut ancestors: Vec<&Path> = root.ancestors().collect();
    ancestors.reverse();
    for dir in ancestors {
        if !can_enter(dir, user, binaries).await? {
            return Err(BuiltinError::Unreachable {
                user: user.name(),
                blocked: dir.to_owned(),
                root: root.to_owned(),
            });
        }
    }
    Ok(())
}

async fn can_enter(dir: &Path, user: &RunAs, binaries: &Binaries) -> Result<bool, BuiltinError> {
    // The working directory is entered after the user is changed, so this asks the kernel and not our idea of it.
    let mut command = exec::command(&binaries.program("postgres"), user);
    command.arg("--version").current_dir(dir);
    match exec::run(command, VERSION_LIMIT).await {
        Ok(_) => Ok(true),
        Err(BuiltinError::Exec { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Returns the cluster's directory: checked when it exists, made when it does not.
pub(super) async fn ensure(
    root: &Path,
    recorded_major: Option<u32>,
    user: &RunAs,
    binaries: &Binaries,
    durable: bool,
) -> Result<PathBuf, BuiltinError> {
    let pgdata = root.join(PGDATA);
    remove_unfinished(root);
    match recorded_major {
        Some(found) if found != binaries.major => Err(BuiltinError::OtherVersion {
            pgdata,
            found,
            binary: binaries.major,
            bin_dir: binaries.dir.clone(),
        }),
        Some(_) => {
            let owner = std::fs::metadata(&pgdata).map_err(BuiltinError::io("look at", &pgdata))?.uid();
            if owner != user.uid() {
                return Err(BuiltinError::OtherOwner {
                    path: pgdata,
                    owner,
                    user: user.name(),
                    uid: user.uid(),
                });
            }
            Ok(pgdata)
        }
        None => {
            create(root, &pgdata, user, binaries, durable).await?;
            Ok(pgdata)
        }
    }
}

/// Makes the cluster beside its place and moves it there whole, so that `pgdata` either is a finished cluster
/// or does not exist.
async fn create(
    root: &Path,
    pgdata: &Path,
    user: &RunAs,
    binaries: &Binaries,
    durable: bool,
) -> Result<(), BuiltinError> {
    let template = root.join(format!("{UNFINISHED}XXXXXX"));
    let unfinished = nix::unistd::mkdtemp(&template).map_err(|errno| BuiltinError::Io {
        what: "create",
        path: template,
        source: errno.into(),
    })?;
    user.chown(&unfinished)?;
    let mut command = exec::command(&binaries.program("initdb"), user);
    command.arg("--pgdata").arg(&unfinished).args(["--username", SUPERUSER]);
    // Whoever can open the socket is already trusted (its directory is private); TCP is refused twice over.
    command.args(["--auth-local=trust", "--auth-host=reject", "--encoding=UTF8", "--locale=C.UTF-8"]);
    command.args(["--data-checksums", "--no-instructions"]);
    if !durable {
        command.arg("--no-sync");
    }
    tracing::info!(dir = %pgdata.display(), version = binaries.major, "creating the built-in PostgreSQL cluster");
    let output = exec::run(command, INITDB_LIMIT).await?;
    if !output.status.success() {
        remove_unfinished(root);
        let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " | ");
        return Err(BuiltinError::Initdb { status: output.status.to_string(), output: text });
    }
    std::fs::rename(&unfinished, pgdata).map_err(BuiltinError::io("put in place", pgdata))?;
    if durable {
        File::open(root).and_then(|dir| dir.sync_all()).map_err(BuiltinError::io("sync", root))?;
    }
    Ok(())
}

/// Clears what a crash in the middle of `create` left. A failure only leaves rubbish for the next start.
fn remove_unfinished(root: &Path) {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED)) {
        tracing::info!(dir = %entry.path().display(), "removing an unfinished cluster");
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(dir = %entry.path().display(), %error, "could not remove an unfinished cluster");
        }
    }
}
