//! A real shell that can do no harm: in namespaces of its own, made by bubblewrap.
//!
//! It has no network, sees no process and no file of the real machine but its programs, is not root and cannot become so, and
//! ends with the simulator. The simulator as root lets an unprivileged user make the namespaces; where that is not allowed,
//! it makes them itself, and the shell gives up root before it begins. What works is found out once.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use node_agent::exec::{ExecError, Run};
use tokio::sync::OnceCell;

use super::rooms::{ETC, Facts, Room, Rooms};

/// The user who has nothing, here and outside.
const NOBODY: u32 = 65_534;
/// Who the shell is in a user namespace.
const USER: u32 = 1000;
/// All below `/usr`, so that a program is at the same place inside.
const PROGRAM_DIRS: [&str; 3] = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];
/// Links to directories below `/usr`, or directories of their own, by how the machine was set up.
const SYSTEM_DIRS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Files of the real `/etc` that tell nothing about the machine.
const SHARED_ETC: [&str; 5] = ["ld.so.cache", "alternatives", "terminfo", "inputrc", "bash.bashrc"];
const PATH: &str = "/opt/gpuaas/bin:/usr/local/bin:/usr/bin:/bin";
const PROMPT: &str = r"\u@\h:\w\$ ";
const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// The kernel takes no longer name of a machine.
const LONGEST_HOSTNAME: usize = 64;

const DROP_ROOT: &str = "--reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --";
const USER_NAMESPACE: &str = "--unshare-user --uid 1000 --gid 1000";
/// Of each process.
const PROCESS_LIMITS: &str = "--nofile=1024 --as=4294967296 --fsize=268435456 --core=0 --";
/// Processes are counted by user and namespace: of one shell in a user namespace, of all shells together without one.
const PROCESSES_OF_ONE: &str = "--nproc=512 --";
const PROCESSES_OF_ALL: &str = "--nproc=4096 --";
/// Bytes of what is in memory and open to the user: `/tmp`, `/dev/shm` and the smaller ones.
const LARGE_TMPFS: u64 = 64 * 1024 * 1024;
const SMALL_TMPFS: u64 = 16 * 1024 * 1024;

/// How the namespaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// Within a user namespace, which an unprivileged user may make; without further ones in it, if bubblewrap can that.
    UserNamespace { nested: bool },
    /// By root, without a user namespace.
    Root,
}

impl Confinement {
    const ALL: [Self; 3] =
        [Self::UserNamespace { nested: false }, Self::UserNamespace { nested: true }, Self::Root];
}

/// For all nodes of a process. Nothing is looked for, and nothing made, before the first shell.
pub struct Sandbox {
    ready: OnceCell<Option<Arc<Ready>>>,
    candidates: Vec<Confinement>,
}

/// A sandbox that works on this machine.
pub struct Ready {
    programs: Programs,
    confinement: Confinement,
    is_root: bool,
    system_dirs: Vec<OsString>,
    pub rooms: Rooms,
}

struct Programs {
    bwrap: PathBuf,
    setpriv: PathBuf,
    unshare: PathBuf,
    prlimit: PathBuf,
    bash: PathBuf,
    nothing: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Refused(#[from] ExecError),
}

impl Default for Sandbox {
    fn default() -> Self {
        Self { ready: OnceCell::new(), candidates: Confinement::ALL.to_vec() }
    }
}

impl Sandbox {
    /// In this way only.
    pub fn confined_by(confinement: Confinement) -> Self {
        Self { ready: OnceCell::new(), candidates: vec![confinement] }
    }

    /// `None` when no shell can be confined here; the log says why, once.
    pub async fn ready(&self) -> Option<Arc<Ready>> {
        let candidates = self.candidates.clone();
        let probe = || async {
            let probed = tokio::task::spawn_blocking(move || Ready::probe(&candidates)).await;
            match probed {
                Ok(Ok(ready)) => Some(Arc::new(ready)),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "simulated nodes have no terminals: install bubblewrap (apt-get install bubblewrap), then start the simulator again");
                    None
                }
                Err(_) => None,
            }
        };
        self.ready.get_or_init(probe).await.clone()
    }

    /// The same, if it was ever asked for.
    pub fn ready_already(&self) -> Option<Arc<Ready>> {
        self.ready.get().cloned().flatten()
    }
}

impl Ready {
    fn probe(candidates: &[Confinement]) -> Result<Self, Unusable> {
        let is_root = nix::unistd::geteuid().is_root();
        let mut ready = Self {
            programs: Programs::find()?,
            confinement: Confinement::Root,
            is_root,
            system_dirs: system_dirs(),
            rooms: Rooms::open(is_root.then_some((NOBODY, NOBODY)))?,
        };
        let facts = Facts {
            username: "probe".to_owned(),
            hostname: "probe".to_owned(),
            uid: NOBODY,
            programs: Vec::new(),
        };
        let room = ready.rooms.prepare("probe", &facts)?;
        let mut refused = Unusable::Missing("a way to make namespaces");
        for &confinement in candidates.iter().filter(|way| is_root || **way != Confinement::Root) {
            ready.confinement = confinement;
            let (program, args) = ready.command(&room, &facts, &ready.programs.nothing);
            match Run::new(&program).args(args).timeout(PROBE_LIMIT).quiet().succeed() {
                Ok(_) => {
                    ready.rooms.remove("probe")?;
                    return Ok(ready);
                }
                Err(error) => refused = error.into(),
            }
        }
        Err(refused)
    }

    /// Who the shell is on the real machine, when that is not the simulator's own user.
    pub fn outside_uid(&self) -> Option<u32> {
        self.is_root.then_some(NOBODY)
    }

    /// The ids of a shell, as it sees them itself.
    pub fn uid(&self) -> u32 {
        match self.confinement {
            Confinement::UserNamespace { .. } => USER,
            Confinement::Root => NOBODY,
        }
    }

    /// A shell in a room: program and arguments.
    pub fn shell(&self, room: &Room, facts: &Facts) -> (PathBuf, Vec<OsString>) {
        self.command(room, facts, &self.programs.bash)
    }

    fn command(&self, room: &Room, facts: &Facts, run: &Path) -> (PathBuf, Vec<OsString>) {
        let programs = &self.programs;
        let mut args = Words::default();
        if self.is_root && self.confinement != Confinement::Root {
            args.path(&programs.setpriv).words(DROP_ROOT);
        }
        // The parent of bubblewrap, which ends with it: a thread of the simulator can be none, since threads come and go.
        args.path(&programs.unshare).words("--fork --kill-child=KILL --");
        args.path(&programs.prlimit).words(PROCESS_LIMITS);
        args.path(&programs.bwrap).words("--die-with-parent --cap-drop ALL");
        match self.confinement {
            Confinement::UserNamespace { nested: true } => args.words(USER_NAMESPACE),
            Confinement::UserNamespace { nested: false } => {
                args.words(USER_NAMESPACE).words("--disable-userns")
            }
            // To enter the home, which is closed to others, and to give up root there.
            Confinement::Root => {
                args.words("--cap-add CAP_DAC_READ_SEARCH --cap-add CAP_SETUID --cap-add CAP_SETGID")
            }
        };
        self.namespaces(&mut args, room, facts);
        args.words("--");
        if self.confinement == Confinement::Root {
            args.path(&programs.setpriv).words(DROP_ROOT).path(&programs.prlimit).words(PROCESSES_OF_ALL);
        } else {
            args.path(&programs.prlimit).words(PROCESSES_OF_ONE);
        }
        args.path(run);
        let program = PathBuf::from(args.0.remove(0));
        (program, args.0)
    }

    /// The machine as the shell sees it. The root is closed last: what is mounted below must find its place.
    fn namespaces(&self, args: &mut Words, room: &Room, facts: &Facts) {
        let hostname: String = facts.hostname.chars().take(LONGEST_HOSTNAME).collect();
        let home = PathBuf::from(format!("/home/{}", facts.username));
        args.words("--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try");
        args.words("--hostname").path(hostname.as_ref()).words("--ro-bind /usr /usr");
        args.0.extend(self.system_dirs.iter().cloned());
        // What bubblewrap makes unasked is closed to all but its own user.
        args.words("--dir /etc --dir /home --dir /var");
        for name in ETC {
            args.words("--ro-bind").path(&room.etc(name)).words(&format!("/etc/{name}"));
        }
        for name in SHARED_ETC {
            args.words(&format!("--ro-bind-try /etc/{name} /etc/{name}"));
        }
        args.words("--symlink ../usr/lib/os-release /etc/os-release --symlink ../tmp /var/tmp");
        args.words("--proc /proc --dev /dev");
        for dir in ["/dev/shm", "/tmp"] {
            args.words(&format!("--perms 1777 --size {LARGE_TMPFS} --tmpfs {dir}"));
        }
        for dir in ["/run", "/opt"] {
            args.words(&format!("--size {SMALL_TMPFS} --tmpfs {dir}"));
        }
        args.words("--dir /opt/gpuaas --ro-bind").path(&room.programs()).words("/opt/gpuaas/bin");
        args.words("--bind").path(&room.home()).path(&home);
        args.words("--remount-ro /dev --remount-ro / --chdir").path(&home);
    }
}

/// What a shell has in its environment, besides the terminal's own variables. Nothing of the simulator's gets there.
pub fn environment(username: &str) -> Vec<(String, String)> {
    let home = format!("/home/{username}");
    let variables = [
        ("PATH", PATH),
        ("HOME", &home),
        ("USER", username),
        ("LOGNAME", username),
        ("SHELL", "/bin/bash"),
        ("PS1", PROMPT),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    /// Of a text without anything of anybody's in it.
    fn words(&mut self, words: &str) -> &mut Self {
        self.0.extend(words.split(' ').map(OsString::from));
        self
    }

    fn path(&mut self, path: &Path) -> &mut Self {
        self.0.push(path.into());
        self
    }
}

impl Programs {
    fn find() -> Result<Self, Unusable> {
        let find = |name: &'static str| {
            let mut paths = PROGRAM_DIRS.iter().map(|dir| Path::new(dir).join(name));
            paths.find(|path| path.is_file()).ok_or(Unusable::Missing(name))
        };
        Ok(Self {
            bwrap: find("bwrap")?,
            setpriv: find("setpriv")?,
            unshare: find("unshare")?,
            prlimit: find("prlimit")?,
            bash: find("bash")?,
            nothing: find("true")?,
        })
    }
}

fn system_dirs() -> Vec<OsString> {
    let mut args = Words::default();
    for name in SYSTEM_DIRS {
        let path = format!("/{name}");
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => args.words(&format!("--symlink usr/{name} {path}")),
            Ok(meta) if meta.is_dir() => args.words(&format!("--ro-bind {path} {path}")),
            _ => &mut args,
        };
    }
    args.0
}
