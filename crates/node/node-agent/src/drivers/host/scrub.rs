//! Everything that a user may have left outside the account files: schedules, files, mounts, shared memory, keys.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use node_proto::catalog::AccountSpec;
use rustix::{fs::AtFlags, io::Errno, mount::UnmountFlags};

use super::{
    Case, RealHost, database, keys,
    tree::{Ids, Sweep, open_dir, remove, search},
};
use crate::{
    drivers::{Done, files::read_bounded},
    exec::Run,
};

/// Where anybody may write.
const PLACES: &[&str] =
    &["tmp", "var/tmp", "run/lock", "run/screen", "var/crash", "var/mail", "var/spool/mail"];
const PLACES_IN_DEV: &[&str] = &["shm", "mqueue"];
/// Files that are named after the user, in directories of root's.
const SCHEDULES_BY_NAME: &[&str] = &["var/spool/cron/crontabs", "var/spool/cron", "var/lib/systemd/linger"];
const SCHEDULES_BY_OWNER: &[&str] = &["var/spool/cron/atjobs", "var/spool/cron/atspool", "var/spool/at"];
const NAMED: &[&str] = &["var/mail", "var/spool/mail", "run/sudo/ts", "var/lib/sudo/lectured"];
const HOMES_LOOKED_AT: usize = 4096;
/// A pass may miss what another pass finds: a directory changes while it is read.
const PASSES: usize = 3;
const SYSTEMD_WAIT: Duration = Duration::from_secs(20);

impl RealHost {
    fn places(&self) -> impl Iterator<Item = PathBuf> {
        let roots = &self.roots;
        let below = PLACES.iter().map(|place| roots.root.join(place));
        below.chain(PLACES_IN_DEV.iter().map(|place| roots.dev.join(place)))
    }

    /// Asks the service manager, where there is one, to end the user's own services and sessions.
    pub(super) fn end_sessions(&self, account: &AccountSpec) {
        if !self.root("run/systemd/system").is_dir() {
            return;
        }
        let uid = account.uid.to_string();
        if let Some(loginctl) = self.programs.loginctl.as_deref().filter(|path| path.exists()) {
            // What it cannot end is ended below, process by process.
            let _ = Run::new(loginctl).args(["terminate-user", &uid]).timeout(SYSTEMD_WAIT).run();
        }
        if let Some(systemctl) = self.programs.systemctl.as_deref().filter(|path| path.exists()) {
            let units = [format!("user@{uid}.service"), format!("user-runtime-dir@{uid}.service")];
            let _ = Run::new(systemctl).arg("stop").args(&units).timeout(SYSTEMD_WAIT).run();
        }
    }

    /// Cron tables, jobs for later, services that start without a session.
    pub(super) fn remove_schedules(&self, case: &Case<'_>, sweep: &mut Sweep) {
        for place in SCHEDULES_BY_NAME {
            self.remove_named(&self.root(place), &case.account.username, sweep);
        }
        for place in SCHEDULES_BY_OWNER {
            search(&self.root(place), case.ids, false, sweep);
        }
    }

    /// A file of that name; a directory of that name is something else.
    fn remove_named(&self, dir: &Path, name: &str, sweep: &mut Sweep) {
        let Ok(fd) = open_dir(dir) else { return };
        match rustix::fs::unlinkat(&fd, name, AtFlags::empty()) {
            Ok(()) => sweep.removed = sweep.removed.saturating_add(1),
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(error) => sweep.note(&dir.join(name), error),
        }
    }

    pub(super) fn remove_files(&self, case: &Case<'_>, sweep: &mut Sweep) {
        let Case { account, ids, known, .. } = *case;
        let runtime = self.root("run/user").join(account.uid.to_string());
        let home = self.root(Self::home_path(&account.username).trim_start_matches('/'));
        self.unmount_below(&home, sweep);
        self.unmount_below(&runtime, sweep);
        if let (Some(users), true) = (runtime.parent(), runtime.exists()) {
            let removed =
                open_dir(users).and_then(|dir| remove(&dir, account.uid.to_string().as_str(), sweep));
            if let Err(error) = removed {
                sweep.note(&runtime, error);
            }
        }
        if let Some(homes) = home.parent()
            && let Ok(dir) = open_dir(homes)
            && let Ok(stat) = rustix::fs::statat(&dir, account.username.as_str(), AtFlags::SYMLINK_NOFOLLOW)
            // A directory of that name that never was this account's stays.
            && (known || ids.contains(stat.st_uid))
            && let Err(error) = remove(&dir, account.username.as_str(), sweep)
        {
            sweep.note(&home, error);
        }
        for dir in NAMED {
            self.remove_named(&self.root(dir), &account.username, sweep);
        }
        for _ in 0..PASSES {
            let before = sweep.removed;
            for place in self.places() {
                search(&place, ids, false, sweep);
            }
            if sweep.removed == before {
                break;
            }
        }
    }

    /// What is mounted at or below the path is detached: its content is not the machine's to delete.
    fn unmount_below(&self, path: &Path, sweep: &mut Sweep) {
        let Ok((table, _)) = read_bounded(&self.roots.proc.join("self/mountinfo"), 4 * 1024 * 1024) else {
            return;
        };
        let table = String::from_utf8_lossy(&table);
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
        let mut below: Vec<PathBuf> =
            points.map(PathBuf::from).filter(|point| point.starts_with(path)).collect();
        // The deepest first.
        below.sort();
        for point in below.iter().rev() {
            if let Err(error) = rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                sweep.note(point, format!("cannot be unmounted: {error}"));
            }
        }
    }

    /// Shared memory, semaphores and message queues outlive their processes.
    pub(super) fn remove_ipc(&self, ids: &Ids, sweep: &mut Sweep) {
        let Some(ipcrm) = self.programs.ipcrm.as_deref().filter(|path| path.exists()) else { return };
        for (flag, id) in self.ipc(ids) {
            match Run::new(ipcrm).arg(flag).arg(&id).succeed() {
                Ok(_) => sweep.removed = sweep.removed.saturating_add(1),
                Err(error) => sweep.note(Path::new("ipc"), error),
            }
        }
    }

    fn ipc(&self, ids: &Ids) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for (file, flag) in [("shm", "-m"), ("sem", "-s"), ("msg", "-q")] {
            let path = self.roots.proc.join("sysvipc").join(file);
            let Ok((bytes, _)) = read_bounded(&path, 4 * 1024 * 1024) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.lines();
            let uid =
                lines.next().and_then(|head| head.split_whitespace().position(|column| column == "uid"));
            let Some(uid) = uid else { continue };
            for line in lines {
                let columns: Vec<_> = line.split_whitespace().collect();
                let owner = columns.get(uid).and_then(|text| text.parse().ok());
                if let (Some(id), true) = (columns.get(1), owner.is_some_and(|owner| ids.contains(owner))) {
                    found.push((flag, (*id).to_owned()));
                }
            }
        }
        found
    }

    /// Takes the owner's block out of every `authorized_keys` that it may have been copied to.
    pub(super) fn remove_blocks(&self, owner: &str, previous: &[String], sweep: &mut Sweep) -> Done<()> {
        for entry in database::accounts(&self.roots.root)?.into_iter().take(HOMES_LOOKED_AT) {
            let home = self.root(entry.home.trim_start_matches('/'));
            let Ok(dir) = open_dir(&home) else { continue };
            if !keys::has_block(&dir, owner) {
                continue;
            }
            match keys::install(&dir, (entry.uid, entry.gid), owner, &[], previous) {
                Ok(_) => sweep.removed = sweep.removed.saturating_add(1),
                Err(error) => sweep.note(&home, error),
            }
        }
        Ok(())
    }

    /// What is left of the user anywhere, as text for an operator.
    pub(super) fn left_over(&self, case: &Case<'_>, sweep: &mut Sweep) -> Done<()> {
        let Case { account, owner, ids, known } = *case;
        for pid in super::processes::list(&self.roots.proc, ids)? {
            sweep.note(Path::new(&format!("process {pid}")), "still runs");
        }
        for file in database::mentions(&self.roots.root, &account.username)? {
            sweep.note(&self.root("etc").join(file), "still names the account");
        }
        let home = self.root(Self::home_path(&account.username).trim_start_matches('/'));
        let runtime = self.root("run/user").join(account.uid.to_string());
        let schedules = SCHEDULES_BY_NAME.iter().map(|place| self.root(place).join(&account.username));
        let schedules = schedules.filter(|path| path.is_file());
        for path in [home, runtime].into_iter().chain(schedules).chain(self.system_files(owner)) {
            let gone = match rustix::fs::lstat(&path) {
                Err(Errno::NOENT | Errno::NOTDIR) => true,
                Ok(stat) => !known && !ids.contains(stat.st_uid),
                Err(_) => false,
            };
            if !gone {
                sweep.note(&path, "still there");
            }
        }
        let by_owner = SCHEDULES_BY_OWNER.iter().map(|place| self.root(place));
        for place in by_owner.chain(self.places()) {
            search(&place, ids, true, sweep);
        }
        for (flag, id) in self.ipc(ids) {
            sweep.note(Path::new(&format!("ipc {flag} {id}")), "still there");
        }
        Ok(())
    }
}

/// The kernel writes blanks and the like in paths as `\040`.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        rest = match value {
            Some(value) => {
                bytes.push(value);
                after.get(3..).unwrap_or_default()
            }
            None => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_mount_table_are_read_as_they_are() {
        assert_eq!(unescape(r"/home/a\040b\134c"), r"/home/a b\c");
        assert_eq!(unescape(r"/odd\04"), r"/odd\04");
    }
}
