//! Ending every process of a user, also of one who does not want it.
//!
//! Processes are stopped before they are killed, because what is stopped cannot make new ones; then it is looked
//! again, until there are none. A process is held by its descriptor while it is checked and ended, so the one
//! that is killed is the one that was looked at, not a later one with the same number.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::tree::Ids;
use crate::drivers::{Done, DriverError, files::read_bounded};

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const STATUS_BYTES: usize = 64 * 1024;

/// Kills them all and gives how many there were.
pub fn end_all(proc: &Path, ids: &Ids, limit: Duration) -> Done<u32> {
    let deadline = Instant::now() + limit;
    let mut seen = BTreeSet::new();
    let mut clear = 0;
    loop {
        let found = list(proc, ids)?;
        if found.is_empty() {
            clear += 1;
            // One that was being made during the first look is found by the second.
            if clear == 2 {
                return Ok(u32::try_from(seen.len()).unwrap_or(u32::MAX));
            }
        } else {
            clear = 0;
            if Instant::now() > deadline {
                let some: Vec<_> = found.iter().take(10).map(u32::to_string).collect();
                return Err(DriverError::failed(format!(
                    "{} processes of the user could not be ended, among them {}; they may hang in a driver: look at them, or reboot",
                    found.len(),
                    some.join(", ")
                )));
            }
        }
        let held: Vec<_> = found
            .into_iter()
            .filter_map(|pid| {
                let fd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
                belongs(proc, pid, ids).then_some((pid, fd))
            })
            .collect();
        for (_, fd) in &held {
            let _ = pidfd_send_signal(fd, Signal::STOP);
        }
        for (pid, fd) in &held {
            let _ = pidfd_send_signal(fd, Signal::KILL);
            seen.insert(*pid);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// The processes of the user, those that have ended and wait to be noticed by their parent left out.
pub fn list(proc: &Path, ids: &Ids) -> Done<Vec<u32>> {
    let entries = std::fs::read_dir(proc)
        .map_err(|error| DriverError::failed(format!("{} cannot be read: {error}", proc.display())))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    Ok(pids.filter(|pid| *pid > 1 && *pid != own && belongs(proc, *pid, ids)).collect())
}

fn belongs(proc: &Path, pid: u32, ids: &Ids) -> bool {
    let dir = proc.join(pid.to_string());
    let Ok((status, _)) = read_bounded(&dir.join("status"), STATUS_BYTES) else { return false };
    let status = String::from_utf8_lossy(&status);
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    if is_over(&status) && !has_living_thread(&dir) {
        return false;
    }
    // Real, effective, saved and file system id.
    if field("Uid:").split_whitespace().filter_map(|id| id.parse().ok()).any(|id| ids.contains(id)) {
        return true;
    }
    // Who signed in, also after becoming another user by sudo.
    let login =
        read_bounded(&dir.join("loginuid"), 32).ok().and_then(|(bytes, _)| String::from_utf8(bytes).ok());
    login.and_then(|text| text.trim().parse::<u32>().ok()) == Some(ids.uid)
}

fn is_over(status: &str) -> bool {
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
    state.trim().starts_with(['Z', 'X'])
}

/// A process whose first thread has ended looks like a zombie, and its other threads run on.
fn has_living_thread(dir: &Path) -> bool {
    let threads = std::fs::read_dir(dir.join("task")).into_iter().flatten().flatten();
    threads.map(|thread| read_bounded(&thread.path().join("status"), STATUS_BYTES)).any(|status| {
        status.is_ok_and(|(status, _)| !status.is_empty() && !is_over(&String::from_utf8_lossy(&status)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_by_any_of_their_ids_and_zombies_are_not_counted() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: u32, status: &str, login: &str| {
            let dir = proc.path().join(pid.to_string());
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("status"), status).unwrap();
            std::fs::write(dir.join("loginuid"), login).unwrap();
        };
        process(
            4_000_001,
            "Name:\tsh\nState:\tS (sleeping)\nUid:\t20001\t20001\t20001\t20001\n",
            "4294967295",
        );
        process(4_000_002, "State:\tR (running)\nUid:\t0\t20001\t0\t0\n", "4294967295");
        process(4_000_003, "State:\tZ (zombie)\nUid:\t20001\t20001\t20001\t20001\n", "20001");
        process(4_000_004, "State:\tS\nUid:\t0\t0\t0\t0\n", "20001");
        process(4_000_005, "State:\tS\nUid:\t0\t0\t0\t0\n", "4294967295");
        process(4_000_006, "garbage", "garbage");
        process(1, "State:\tS\nUid:\t20001\t20001\t20001\t20001\n", "20001");
        std::fs::create_dir(proc.path().join("4000007")).unwrap();
        // The first thread has ended, another one has not.
        process(4_000_008, "State:\tZ (zombie)\nUid:\t20001\t20001\t20001\t20001\n", "20001");
        process(4_000_009, "State:\tZ (zombie)\nUid:\t20001\t20001\t20001\t20001\n", "20001");
        for (pid, thread, state) in
            [(4_000_008, 4_000_008, "Z"), (4_000_008, 4_000_010, "S"), (4_000_009, 4_000_009, "Z")]
        {
            let thread = proc.path().join(format!("{pid}/task/{thread}"));
            std::fs::create_dir_all(&thread).unwrap();
            std::fs::write(thread.join("status"), format!("State:\t{state}\n")).unwrap();
        }
        let mut found = list(proc.path(), &Ids { uid: 20_001, subordinate: Vec::new() }).unwrap();
        found.sort_unstable();
        assert_eq!(found, [4_000_001, 4_000_002, 4_000_004, 4_000_008]);
        assert!(list(Path::new("/nonexistent"), &Ids { uid: 1, subordinate: Vec::new() }).is_err());
    }
}
