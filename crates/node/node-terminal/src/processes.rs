//! All processes of a session, and their end.
//!
//! A process belongs to a session if it is in the session's control group, which it cannot leave ([`crate::cgroup`]). Where there
//! are none, it belongs if the kernel's session is the leader's, if its environment has the session's marker (what called
//! `setsid` keeps it), or if its parent belongs. Background jobs have process groups of their own, so the leader's group alone is
//! not enough.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read as _,
    time::Duration,
};

use kernel::ids::{NodeId, TerminalSessionId};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::time::Instant;

use crate::cgroup::SessionCgroup;

/// The variable in the environment of every process of a session. What starts the shell must keep it.
pub const MARKER: &str = "GPUAAS_TERMINAL";
/// Between the hangup and the kill.
const HANGUP: Duration = Duration::from_secs(2);
/// What was killed and is still there after this time hangs in the kernel.
const KILL: Duration = Duration::from_secs(5);
/// A control group without processes can be removed at once, or very soon.
const REMOVE_CGROUPS: Duration = Duration::from_secs(1);
const REMOVE_CGROUPS_DROPPED: Duration = Duration::from_millis(50);
const REMOVE_CGROUPS_PAUSE: Duration = Duration::from_millis(5);
/// So many times at most it is looked whether the leader is in the scope of a login. It is before the user's shell prints
/// anything, and what comes before that is a few lines.
const LOGIN_LOOKS: u32 = 64;
/// How much of an environment is read.
const LONGEST_ENVIRONMENT: u64 = 256 * 1024;

/// The longest time that [`Processes::end`] takes, with some to spare.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(10);

/// The value of [`MARKER`] in one session.
pub(crate) fn marker_value(node: NodeId, session: TerminalSessionId) -> String {
    format!("{node}/{session}")
}

/// Ends everything that sessions of this node have left behind when an earlier agent was killed. To be called before sessions
/// are started.
pub async fn end_leftovers(node: NodeId) {
    let marked = format!("{node}/");
    let cgroups = tokio::task::spawn_blocking(move || (SessionCgroup::left(&marked), marked)).await;
    if let Ok((cgroups, marked)) = cgroups {
        Processes::new(None, &marked, cgroups).end().await;
    }
}

/// The processes of one session. Dropped before [`Processes::end`] is through, they are killed without a warning.
pub(crate) struct Processes {
    search: Search,
    login_looks: u32,
    ended: bool,
}

#[derive(Clone)]
struct Search {
    /// The session id in the kernel.
    leader: Option<i32>,
    /// The leader was waited for, so its number may be another's.
    reaped: bool,
    /// The start of an entry in an environment.
    marker: Vec<u8>,
    cgroups: Vec<SessionCgroup>,
}

/// One line of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// Tells a process from a later one with the same number.
    started: u64,
}

impl Processes {
    /// `marked` is what the value of the marker begins with.
    pub fn new(leader: Option<i32>, marked: &str, cgroups: Vec<SessionCgroup>) -> Self {
        let marker = format!("{MARKER}={marked}").into_bytes();
        let search = Search { leader, reaped: false, marker, cgroups };
        Self { search, login_looks: LOGIN_LOOKS, ended: false }
    }

    /// The leader has ended and was waited for.
    pub fn leader_reaped(&mut self) {
        self.search.reaped = true;
    }

    /// To be called when the program has printed something: PAM may have moved it to the scope of a login.
    pub fn look_for_login(&mut self) {
        let Some(leader) = self.search.leader.filter(|_| self.login_looks > 0 && !self.search.reaped) else {
            return;
        };
        self.login_looks -= 1;
        if self.search.cgroups.iter_mut().any(|cgroup| cgroup.note_login(leader)) {
            self.login_looks = 0;
        }
    }

    /// Hangs up, and kills what is still there two seconds later. Returns when nothing is left.
    pub async fn end(&mut self) {
        let mut left = self.signal(&[Signal::HUP, Signal::CONT]).await;
        let kill_at = Instant::now() + HANGUP;
        let mut pause = Duration::from_millis(10);
        while left > 0 && Instant::now() < kill_at {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
            left = self.signal(&[]).await;
        }
        let give_up_at = Instant::now() + KILL;
        while left > 0 && Instant::now() < give_up_at {
            self.signal(&[Signal::KILL]).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            left = self.signal(&[]).await;
        }
        if left > 0 {
            tracing::error!(left, "processes of a terminal session cannot be killed");
        } else {
            self.remove_cgroups().await;
        }
        self.ended = true;
    }

    async fn remove_cgroups(&self) {
        if self.search.cgroups.is_empty() {
            return;
        }
        let give_up_at = Instant::now() + REMOVE_CGROUPS;
        loop {
            let search = self.search.clone();
            if tokio::task::spawn_blocking(move || search.remove_cgroups()).await.unwrap_or(true) {
                return;
            }
            if Instant::now() > give_up_at {
                tracing::warn!("the control group of a terminal session cannot be removed");
                return;
            }
            tokio::time::sleep(REMOVE_CGROUPS_PAUSE).await;
        }
    }

    /// Sends signals to all, in this order. Answers how many there were.
    async fn signal(&self, signals: &'static [Signal]) -> usize {
        let search = self.search.clone();
        // Reading /proc takes milliseconds on a busy machine.
        tokio::task::spawn_blocking(move || search.signal(signals)).await.unwrap_or_default()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.ended {
            // What a killed process forked just before is found the next time.
            for _ in 0..3 {
                if self.search.signal(&[Signal::KILL]) == 0 {
                    break;
                }
            }
            let give_up_at = Instant::now() + REMOVE_CGROUPS_DROPPED;
            while !self.search.remove_cgroups() && Instant::now() < give_up_at {
                std::thread::sleep(REMOVE_CGROUPS_PAUSE);
            }
        }
    }
}

impl Search {
    fn signal(&self, signals: &[Signal]) -> usize {
        let found = self.find();
        for signal in signals {
            if *signal == Signal::KILL {
                self.cgroups.iter().for_each(SessionCgroup::kill);
                self.kill_groups(&found);
            }
            for process in &found {
                send(process, *signal);
            }
        }
        found.len()
    }

    /// At once, so that what forks all the time does not outrun the kill.
    fn kill_groups(&self, found: &[Stat]) {
        let ours = found.iter().filter(|process| Some(process.session) == self.leader);
        for group in ours.map(|process| process.group).collect::<HashSet<_>>() {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }

    fn find(&self) -> Vec<Stat> {
        let own = getpid().as_raw_pid();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let all: Vec<Stat> = pids.filter(|pid| *pid != own).filter_map(read_stat).collect();
        let reused = self.reaped && all.iter().any(|process| Some(process.pid) == self.leader);
        let session = self.leader.filter(|_| !reused);
        let mut belong: HashMap<i32, Stat> = all
            .iter()
            .filter(|process| Some(process.session) == session || self.is_marked(process.pid))
            .map(|process| (process.pid, *process))
            .collect();
        for cgroup in &self.cgroups {
            for pid in cgroup.pids().into_iter().filter(|pid| *pid != own) {
                // In this order: a number that was in a group before may be another's now.
                if let Some(process) = read_stat(pid).filter(|_| cgroup.contains(pid)) {
                    belong.insert(pid, process);
                }
            }
        }
        // Children of children: until no more are found.
        loop {
            let before = belong.len();
            for process in &all {
                if belong.contains_key(&process.parent) {
                    belong.insert(process.pid, *process);
                }
            }
            if belong.len() == before {
                return belong.into_values().collect();
            }
        }
    }

    /// Answers whether all are gone.
    fn remove_cgroups(&self) -> bool {
        self.cgroups.iter().filter(|cgroup| !cgroup.remove()).count() == 0
    }

    fn is_marked(&self, pid: i32) -> bool {
        let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) else { return false };
        let mut environment = Vec::new();
        let read = file.take(LONGEST_ENVIRONMENT).read_to_end(&mut environment);
        read.is_ok() && environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(&self.marker))
    }
}

/// To this very process, and not to a later one with its number.
fn send(process: &Stat, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read_stat(process.pid).is_some_and(|now| now.started == process.started) {
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Nothing for a process that has ended, waited for or not.
fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(pid: i32, line: &str) -> Option<Stat> {
    // The name is in parentheses and may hold anything, also parentheses.
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let mut number = |skipped: usize| fields.nth(skipped)?.parse::<i64>().ok();
    let [parent, group, session] = [number(0)?, number(0)?, number(0)?].map(i32::try_from);
    let started = u64::try_from(number(15)?).ok()?;
    Some(Stat { pid, parent: parent.ok()?, group: group.ok()?, session: session.ok()?, started })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let line = "7 (a) b (c) S 1 70 71 34816 7 4194304 115 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1";
        let stat = Stat { pid: 7, parent: 1, group: 70, session: 71, started: 4242 };
        assert_eq!(parse_stat(7, line), Some(stat));
        assert_eq!(parse_stat(7, &line.replace(") S", ") Z")), None);
        assert_eq!(parse_stat(7, "7 (cut"), None);
    }

    #[test]
    fn the_own_process_has_a_stat_line_and_is_never_found() {
        let own = getpid().as_raw_pid();
        let stat = read_stat(own).unwrap();
        let search = Search {
            leader: Some(stat.session),
            reaped: false,
            marker: b"NOT_SET=".to_vec(),
            cgroups: Vec::new(),
        };
        assert!(search.find().iter().all(|process| process.pid != own));
    }
}
