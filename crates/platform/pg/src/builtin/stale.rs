//! What an earlier run left behind: a server still running on our cluster, or a pid file without one.
//!
//! We hold the lock on the data directory here, so no other program of ours is starting or running a server.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::PORT;
use super::error::BuiltinError;

const POLL: Duration = Duration::from_millis(20);
/// A pid file that cannot be read may be one that is being written at this moment.
const HALF_WRITTEN: Duration = Duration::from_millis(200);
/// Fast shutdown first (it writes a checkpoint), then at once without one. A server that recovers from a crash has
/// nothing to write, and does not look at signals while it syncs its files: it is stopped without one right away.
const STEPS: [(Signal, Duration); 2] =
    [(Signal::SIGINT, Duration::from_secs(30)), (Signal::SIGQUIT, Duration::from_secs(10))];

/// Stops a server left on this cluster and removes a pid file that would wrongly keep a new one from starting.
///
/// The pid file of a process that is gone stays: PostgreSQL removes it itself, after checking that no orphan of
/// the old server still uses the shared memory it names.
pub(super) async fn clear(pgdata: &Path, socket_dir: &Path, uid: u32) -> Result<(), BuiltinError> {
    clear_server(pgdata, uid).await?;
    // No server is left, so its socket files are nobody's. Their lock file would block a new server just as the
    // pid file would; the directory is private, so nothing else can be meant.
    for name in [format!(".s.PGSQL.{PORT}.lock"), format!(".s.PGSQL.{PORT}")] {
        remove(&socket_dir.join(name))?;
    }
    Ok(())
}

async fn clear_server(pgdata: &Path, uid: u32) -> Result<(), BuiltinError> {
    let file = pgdata.join("postmaster.pid");
    let pid = match read_pid(&file)? {
        PidFile::Absent => return Ok(()),
        PidFile::Names(pid) => pid,
        PidFile::Unreadable => {
            tokio::time::sleep(HALF_WRITTEN).await;
            match read_pid(&file)? {
                PidFile::Names(pid) => pid,
                PidFile::Absent => return Ok(()),
                PidFile::Unreadable => return remove_pid_file(&file, "it is unreadable"),
            }
        }
    };
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Ok(());
    }
    if !is_server(pid, pgdata, uid) {
        return remove_pid_file(&file, "its process id now belongs to another program");
    }
    tracing::warn!(pid, "stopping a PostgreSQL server left by an earlier run");
    for (signal, limit) in STEPS {
        // Gone already is fine; the loop below sees it.
        let _ = kill(Pid::from_raw(pid), signal);
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if !is_server(pid, pgdata, uid) {
                return Ok(());
            }
            if signal == Signal::SIGINT && recovers(pid) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Err(BuiltinError::StaleServer { pid })
}

enum PidFile {
    Absent,
    Unreadable,
    Names(i32),
}

fn read_pid(file: &Path) -> Result<PidFile, BuiltinError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(PidFile::Absent),
        Err(error) => return Err(BuiltinError::io("read", file)(error)),
    };
    // A single-user server writes its id negated. Ids 0 and 1 are never a server, and dangerous to signal.
    let pid = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()).and_then(i32::checked_abs);
    Ok(pid.filter(|pid| *pid > 1).map_or(PidFile::Unreadable, PidFile::Names))
}

fn remove_pid_file(file: &Path, why: &str) -> Result<(), BuiltinError> {
    tracing::warn!(file = %file.display(), why, "removing a stale pid file");
    remove(file)
}

fn remove(file: &Path) -> Result<(), BuiltinError> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BuiltinError::io("remove", file)(error))
        }
        _ => Ok(()),
    }
}

/// Whether the process is a PostgreSQL server of this user on this cluster. Judged by its command line, which
/// (unlike its working directory) can be read without special rights; a dead process not yet reaped has none.
fn is_server(pid: i32, pgdata: &Path, uid: u32) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    if !std::fs::metadata(&proc).is_ok_and(|seen| seen.uid() == uid) {
        return false;
    }
    let Ok(line) = std::fs::read(proc.join("cmdline")) else { return false };
    let words: Vec<&str> =
        line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    serves(&words, pgdata)
}

/// Whether the server replays its log: it then has a child that PostgreSQL titles so.
fn recovers(pid: i32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().any(|child| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"postgres: startup"))
    })
}

fn serves(words: &[&str], pgdata: &Path) -> bool {
    let program = words.first().and_then(|word| Path::new(word).file_name()).and_then(|name| name.to_str());
    let directory = words.iter().position(|word| *word == "-D").and_then(|at| words.get(at + 1));
    matches!(program, Some("postgres" | "postmaster"))
        && directory.is_some_and(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| dir == pgdata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_of_this_cluster_is_recognised() {
        let temp = tempfile::tempdir().expect("temp dir");
        let ours = std::fs::canonicalize(temp.path()).expect("real path");
        let dir = ours.to_str().expect("utf-8");
        assert!(serves(&["/usr/lib/postgresql/15/bin/postgres", "-D", dir, "-c", "port=1"], &ours));
        assert!(!serves(&["/usr/bin/vim", "-D", dir], &ours));
        assert!(!serves(&["postgres", "-D", "/"], &ours));
        assert!(!serves(&["postgres", "-D"], &ours));
        assert!(!serves(&[""], &ours));
    }

    #[tokio::test]
    async fn pid_file_naming_another_program_is_removed_and_that_program_lives() {
        let temp = tempfile::tempdir().expect("temp dir");
        let file = temp.path().join("postmaster.pid");
        // This very process stands for a program that got the old server's id.
        std::fs::write(&file, format!("{}\n", std::process::id())).expect("write");
        clear(temp.path(), temp.path(), nix::unistd::geteuid().as_raw()).await.expect("cleared");
        assert!(!file.exists());
    }

    /// As a postmaster that syncs its files after a crash: it does not obey a fast shutdown.
    const RECOVERING: &str =
        r#"trap "" INT; (exec -a "postgres: startup recovering" sleep 60) & trap "kill $!; exit" QUIT; wait"#;

    #[tokio::test]
    #[allow(clippy::disallowed_methods, reason = "a program of this test")]
    async fn a_server_in_recovery_is_stopped_without_waiting_for_a_checkpoint() {
        use std::os::unix::process::CommandExt as _;
        let temp = tempfile::tempdir().expect("temp dir");
        let pgdata = std::fs::canonicalize(temp.path()).expect("real path");
        let mut server = std::process::Command::new("bash")
            .arg0("postgres")
            .args(["-c", RECOVERING, "-D"])
            .arg(&pgdata)
            .spawn()
            .expect("start");
        let pid = i32::try_from(server.id()).expect("a pid");
        while !recovers(pid) {
            tokio::time::sleep(POLL).await;
        }
        std::fs::write(pgdata.join("postmaster.pid"), format!("{pid}\n")).expect("write");
        let reaped = tokio::task::spawn_blocking(move || server.wait());
        let uid = nix::unistd::geteuid().as_raw();
        let cleared = tokio::time::timeout(STEPS[0].1 / 2, clear(&pgdata, &pgdata, uid)).await;
        cleared.expect("long before the limit of a fast shutdown").expect("cleared");
        reaped.await.expect("joined").expect("reaped");
    }

    #[tokio::test]
    async fn pid_files_that_could_hit_everyone_are_never_signalled() {
        let temp = tempfile::tempdir().expect("temp dir");
        let file = temp.path().join("postmaster.pid");
        for text in ["", "0\n", "-1\n", "1\n", "-2147483648\n", "garbage\n"] {
            std::fs::write(&file, text).expect("write");
            clear(temp.path(), temp.path(), nix::unistd::geteuid().as_raw()).await.expect("cleared");
            assert!(!file.exists(), "{text:?}");
        }
    }
}
