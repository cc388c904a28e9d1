//! A control group (cgroup v2) for each session: whoever is not root cannot leave the one in which it was started, whatever it
//! does with its environment, its parent and its kernel session. Where systemd manages services of the user, it moves processes
//! of that user into them when the user asks for it (`systemd-run --user --scope`): those are no part of the session any more.
//!
//! **Which groups.** A session has a directory below the agent's own group, named by node and session; the program enters it
//! before it runs anything of the user's. Where a login is a session of systemd (`pam_systemd`, in `/etc/pam.d/runuser-l` of most
//! systems), PAM moves the program on to the scope of that login before the user's shell starts. Such a scope has nothing but this
//! session in it, and counts as the session's too.
//!
//! **After a crash of the agent** the directory is found by its name, and the scope by an attribute of the directory. No scope
//! that came later is taken for it: numbers of inodes are not used again.
//!
//! Where there is no cgroup v2 that the agent may write, there are no such groups, and processes are found as well as they can be
//! without ([`crate::processes`]).

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
    sync::{LazyLock, Once},
    time::Duration,
};

use rustix::fs::{XattrFlags, getxattr, setxattr};

const NAME: &str = "gpuaas-terminal-";
/// Of a session's directory: inode and path of the scope of its login. Only root reads and writes it.
const LOGIN: &str = "trusted.gpuaas-login";
const LONGEST_LOGIN: usize = 4096;
/// Whoever makes a directory enters it sooner.
const ABANDONED: Duration = Duration::from_secs(60);
/// Groups within a session's, as far as anybody who is root makes some.
const MOST_GROUPS: usize = 1000;

/// Where groups are on this machine, and which is the agent's own.
static HIERARCHY: LazyLock<Option<Hierarchy>> = LazyLock::new(Hierarchy::find);
static UNUSABLE: Once = Once::new();
static SWEPT: Once = Once::new();

struct Hierarchy {
    mount: Mount,
    own: PathBuf,
}

/// A cgroup v2 that is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The group that is seen at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Hierarchy {
    fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find_map(Mount::parse)?;
        let own = mount.group_of("self")?;
        Some(Self { mount, own })
    }

    /// An agent that was started by hand is in the scope of somebody's login itself.
    fn may_be_login(&self, dir: &Path) -> bool {
        let is_group = dir.starts_with(&self.mount.point)
            && !dir.components().any(|part| matches!(part, Component::ParentDir));
        is_group && is_login_scope(dir) && !self.own.starts_with(dir)
    }
}

impl Mount {
    /// A line of `mountinfo`, if it is one.
    fn parse(line: &str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let is_one = filesystem.split(' ').next() == Some("cgroup2");
        is_one.then_some(Self { root: fields.next()?.into(), point: fields.next()?.into() })
    }

    /// The directory of a process's group.
    fn group_of(&self, process: &str) -> Option<PathBuf> {
        self.group(&fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
    }

    fn group(&self, cgroups: &str) -> Option<PathBuf> {
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
        let below = Path::new(path).strip_prefix(&self.root).ok()?;
        // Groups outside of what this process sees begin with `..`.
        let is_below = below.components().all(|part| matches!(part, Component::Normal(_)));
        is_below.then(|| self.point.join(below))
    }
}

/// The groups of one session.
#[derive(Clone, Debug)]
pub(crate) struct SessionCgroup {
    dir: PathBuf,
    login: Option<LoginScope>,
}

#[derive(Clone, Debug)]
struct LoginScope {
    dir: PathBuf,
    inode: u64,
}

impl SessionCgroup {
    /// `marker` is the value of the session's marker. Nothing where the agent cannot make groups.
    pub fn create(marker: &str) -> Option<Self> {
        let created = HIERARCHY.as_ref().map(|hierarchy| {
            let dir = hierarchy.own.join(dir_name(marker));
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(dir),
            }
        });
        let error = match created {
            Some(Ok(dir)) => {
                SWEPT.call_once(|| remove_abandoned(&dir));
                return Some(Self { dir, login: None });
            }
            Some(Err(error)) => error.to_string(),
            None => "there is no cgroup v2".to_owned(),
        };
        UNUSABLE.call_once(|| {
            tracing::info!(
                error,
                "terminal sessions have no control groups: a process that hides may outlive its session"
            );
        });
        None
    }

    /// Those which an earlier agent has left. `marked` is what the value of the marker begins with.
    pub fn left(marked: &str) -> Vec<Self> {
        let Some(entries) = HIERARCHY.as_ref().and_then(|hierarchy| fs::read_dir(&hierarchy.own).ok()) else {
            return Vec::new();
        };
        let name = dir_name(marked);
        let is_left = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(name.as_bytes());
        let dirs = entries.flatten().filter(is_left).map(|entry| entry.path());
        dirs.map(|dir| Self { login: LoginScope::noted(&dir), dir }).collect()
    }

    /// What a process writes `0` to in order to enter.
    pub fn entrance(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Notes the scope of a login that the leader was moved to, if it was. Answers whether it was.
    pub fn note_login(&mut self, leader: i32) -> bool {
        let Some(hierarchy) = HIERARCHY.as_ref() else { return false };
        let Some(dir) = hierarchy.mount.group_of(&leader.to_string()) else { return false };
        if !hierarchy.may_be_login(&dir) {
            return false;
        }
        let Ok(inode) = fs::metadata(&dir).map(|scope| scope.ino()) else { return false };
        let value = [format!("{inode} ").as_bytes(), dir.as_os_str().as_bytes()].concat();
        if let Err(error) = setxattr(&self.dir, LOGIN, &value, XattrFlags::empty()) {
            tracing::debug!(%error, "the scope of a login cannot be noted");
        }
        self.login = Some(LoginScope { dir, inode });
        true
    }

    /// All processes that have not ended.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        for dir in self.tops().flat_map(groups) {
            let lines = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            // What is in another PID namespace has the number 0.
            pids.extend(lines.lines().filter_map(|line| line.parse().ok()).filter(|pid: &i32| *pid > 0));
        }
        pids
    }

    /// Whether a process is in one of them.
    pub fn contains(&self, pid: i32) -> bool {
        let group = HIERARCHY.as_ref().and_then(|hierarchy| hierarchy.mount.group_of(&pid.to_string()));
        group.is_some_and(|group| self.tops().any(|top| group.starts_with(top)))
    }

    /// All at once, also what forks all the time. Kernels before 5.14 cannot.
    pub fn kill(&self) {
        for dir in self.tops() {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
        }
    }

    /// Removes the session's own directory. Answers whether it is gone.
    pub fn remove(&self) -> bool {
        for dir in groups(&self.dir).iter().rev() {
            let _ = fs::remove_dir(dir);
        }
        !self.dir.exists()
    }

    fn tops(&self) -> impl Iterator<Item = &Path> {
        let login = self.login.as_ref().filter(|login| login.is_there());
        [Some(&self.dir), login.map(|login| &login.dir)].into_iter().flatten().map(PathBuf::as_path)
    }
}

impl LoginScope {
    fn noted(session: &Path) -> Option<Self> {
        let mut value = [0; LONGEST_LOGIN];
        let length = getxattr(session, LOGIN, &mut value[..]).ok()?;
        let value = value.get(..length)?;
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (inode, dir) = value.split_at(space);
        let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
        let dir = PathBuf::from(OsStr::from_bytes(dir.get(1..)?));
        HIERARCHY.as_ref()?.may_be_login(&dir).then_some(Self { dir, inode })
    }

    /// Whether it is still this one.
    fn is_there(&self) -> bool {
        fs::metadata(&self.dir).is_ok_and(|found| found.ino() == self.inode)
    }
}

/// Removes empty directories of sessions beside this new one whose process was killed, and to whose node no agent comes back: a
/// simulator's, for example.
fn remove_abandoned(new: &Path) {
    let made_at = |dir: &Path| fs::metadata(dir).and_then(|found| found.modified()).ok();
    let (Some(now), Some(Ok(entries))) = (made_at(new), new.parent().map(fs::read_dir)) else { return };
    for dir in entries.flatten().map(|entry| entry.path()) {
        let is_session = dir.file_name().is_some_and(|name| name.as_bytes().starts_with(NAME.as_bytes()));
        let age = made_at(&dir).and_then(|made_at| now.duration_since(made_at).ok());
        // One that names a scope with processes is not empty.
        let has_login = || LoginScope::noted(&dir).is_some_and(|login| login.is_there());
        if is_session && age.is_some_and(|age| age > ABANDONED) && !has_login() {
            // The kernel keeps one with processes.
            let _ = fs::remove_dir(&dir);
        }
    }
}

fn dir_name(marker: &str) -> String {
    format!("{NAME}{}", marker.replace('/', "-"))
}

fn is_login_scope(dir: &Path) -> bool {
    let name = dir.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.starts_with(b"session-") && name.ends_with(b".scope")
}

/// A group and those within it, each before its own.
fn groups(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while let Some(dir) = found.get(next).filter(|_| found.len() < MOST_GROUPS) {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let within = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let within: Vec<PathBuf> = within.map(|entry| entry.path()).collect();
        found.extend(within);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str, point: &str) -> Mount {
        Mount { root: root.into(), point: point.into() }
    }

    #[test]
    fn a_group_is_found_on_unified_and_hybrid_systems_and_in_containers() {
        let unified = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(Mount::parse(unified), Some(mount("/", "/sys/fs/cgroup")));
        let hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let hybrid = Mount::parse(hybrid).unwrap();
        assert_eq!(Mount::parse("33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"), None);
        assert_eq!(Mount::parse("23 1 8:1 / / rw - ext4 /dev/sda1 rw"), None);
        let service = "9:name=systemd:/x\n1:cpu:/y\n0::/system.slice/gpuaas-agent.service\n";
        let dir = "/sys/fs/cgroup/unified/system.slice/gpuaas-agent.service";
        assert_eq!(hybrid.group(service).as_deref(), Some(Path::new(dir)));
        assert_eq!(hybrid.group("0::/\n").as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(hybrid.group("0::/../other\n"), None, "outside of what is seen");
        assert_eq!(hybrid.group("1:cpu:/y\n"), None);
        let container = mount("/docker/a", "/sys/fs/cgroup");
        assert_eq!(container.group("0::/docker/a/b\n").as_deref(), Some(Path::new("/sys/fs/cgroup/b")));
        assert_eq!(container.group("0::/docker/other\n"), None);
    }

    #[test]
    fn the_scope_of_a_login_is_told_by_its_name() {
        for scope in ["/x/user-1000.slice/session-c3.scope", "/session-12.scope"] {
            assert!(is_login_scope(scope.as_ref()), "{scope}");
        }
        for other in ["/x/session-c3.scope/below", "/x/gpuaas-agent.service", "/x/session-c3", "/"] {
            assert!(!is_login_scope(other.as_ref()), "{other}");
        }
    }
}
