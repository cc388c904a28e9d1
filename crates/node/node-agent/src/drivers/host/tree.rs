//! Removing what a user left, as root, in directories where the user may have put anything.
//!
//! Nothing is looked up by a path that the user could have changed: every step is relative to a directory that
//! is open, follows no link and enters no other mount. Trees of any depth are taken down with two open
//! directories: what is deep is moved up first.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

/// Directories that are not the user's are searched this deep.
const SEARCH_DEPTH: usize = 64;
const NAMES_AT_ONCE: usize = 4096;

/// Whose files and processes are meant: one user's, and those of its containers.
#[derive(Clone, Debug)]
pub struct Ids {
    pub uid: u32,
    pub subordinate: Vec<(u32, u32)>,
}

impl Ids {
    pub fn contains(&self, id: u32) -> bool {
        id == self.uid || self.subordinate.iter().any(|(first, last)| (*first..=*last).contains(&id))
    }
}

/// What is done until when, and what came of it.
pub struct Sweep {
    pub deadline: Instant,
    pub removed: u32,
    /// What could not be removed, and why; at most some.
    pub left: Vec<String>,
}

const LEFT_AT_MOST: usize = 20;

impl Sweep {
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, removed: 0, left: Vec::new() }
    }

    pub fn note(&mut self, path: &Path, why: impl std::fmt::Display) {
        if self.left.len() < LEFT_AT_MOST {
            self.left.push(format!("{}: {why}", path.display()));
        }
    }

    fn in_time(&self) -> rustix::io::Result<()> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(Errno::TIMEDOUT) }
    }
}

pub fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The directory `name` in `dir`: really in it, no link, no other mount.
fn inner<P: rustix::path::Arg>(dir: impl AsFd, name: P) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

/// Some of the names in a directory, all but none only when it is empty: a directory may hold millions.
fn names(dir: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == NAMES_AT_ONCE {
            break;
        }
    }
    Ok(names)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Removes `name` in `dir` with all that is in it. What is not there is removed already.
pub fn remove<P: rustix::path::Arg + Copy>(
    dir: impl AsFd,
    name: P,
    sweep: &mut Sweep,
) -> rustix::io::Result<()> {
    let dir = dir.as_fd();
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => {
            sweep.removed = sweep.removed.saturating_add(1);
            return Ok(());
        }
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let top = inner(dir, name)?;
    let mut moved = 0_u64;
    // What is in directories below comes up to the top, until there are none.
    loop {
        let entries = names(&top)?;
        if entries.is_empty() {
            break;
        }
        for entry in &entries {
            sweep.in_time()?;
            if let Some(below) = discard(&top, entry, sweep)? {
                loop {
                    let deep = names(&below)?;
                    if deep.is_empty() {
                        break;
                    }
                    for name in &deep {
                        sweep.in_time()?;
                        if discard(&below, name, sweep)?.is_some() {
                            lift(&below, name, &top, &mut moved)?;
                        }
                    }
                }
                rustix::fs::unlinkat(&top, entry, AtFlags::REMOVEDIR)?;
                sweep.removed = sweep.removed.saturating_add(1);
            }
        }
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
    sweep.removed = sweep.removed.saturating_add(1);
    Ok(())
}

/// Removes what is no directory; gives back a directory, open.
fn discard(dir: impl AsFd, name: &CStr, sweep: &mut Sweep) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) => {
            sweep.removed = sweep.removed.saturating_add(1);
            Ok(None)
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::ISDIR) => inner(dir, name).map(Some),
        Err(error) => Err(error),
    }
}

fn lift(from: impl AsFd, name: &CStr, top: impl AsFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let new = format!(".removing-{moved}");
        match rustix::fs::renameat_with(&from, name, &top, new.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

/// Everything below `place` that belongs to the ids is removed (`sweep.removed`), or only told (`dry`).
pub fn search(place: &Path, ids: &Ids, dry: bool, sweep: &mut Sweep) {
    let top = match open_dir(place) {
        Ok(top) => top,
        Err(Errno::NOENT | Errno::NOTDIR) => return,
        Err(error) => return sweep.note(place, error),
    };
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        if sweep.in_time().is_err() {
            return sweep.note(place, "the time was not enough to search it all");
        }
        let dir =
            if relative.as_os_str().is_empty() { top.try_clone().ok() } else { inner(&top, &relative).ok() };
        // Gone meanwhile, or another mount.
        let Some(dir) = dir else { continue };
        let Ok(entries) = Dir::read_from(&dir) else { continue };
        for entry in entries.flatten().filter(|entry| !is_dots(entry.file_name())) {
            let name = entry.file_name();
            let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = relative.join(OsStr::from_bytes(name.to_bytes()));
            if ids.contains(stat.st_uid) {
                if dry {
                    sweep.note(&place.join(&path), "still there");
                } else if let Err(error) = remove(&dir, name, sweep) {
                    sweep.note(&place.join(&path), error);
                }
            } else if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                && path.components().count() < SEARCH_DEPTH
            {
                open.push(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, time::Duration};

    use super::*;

    fn sweep() -> Sweep {
        Sweep::until(Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn a_tree_goes_whatever_its_depth_and_what_links_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink("/etc/passwd", tree.join("file")).unwrap();
        std::fs::create_dir(tree.join(".removing-1")).unwrap();
        // Deeper than a path may be long.
        let mut fd = open_dir(&tree).unwrap();
        for _ in 0..600 {
            rustix::fs::mkdirat(&fd, "0123456789", Mode::RWXU).unwrap();
            rustix::fs::symlinkat(&outside, &fd, "out").unwrap();
            fd = inner(&fd, "0123456789").unwrap();
        }
        let mut swept = sweep();
        remove(open_dir(dir.path()).unwrap(), "tree", &mut swept).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        assert!(swept.removed >= 1200, "{}", swept.removed);
        remove(open_dir(dir.path()).unwrap(), "tree", &mut swept).unwrap();
    }

    #[test]
    fn a_search_without_time_left_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut swept = Sweep::until(Instant::now());
        search(dir.path(), &Ids { uid: 1, subordinate: Vec::new() }, true, &mut swept);
        assert_eq!(swept.left.len(), 1);
    }

    #[test]
    fn ids_of_containers_count() {
        let ids = Ids { uid: 20_001, subordinate: vec![(100_000, 100_009)] };
        assert!(ids.contains(20_001) && ids.contains(100_009) && !ids.contains(100_010) && !ids.contains(0));
    }
}
