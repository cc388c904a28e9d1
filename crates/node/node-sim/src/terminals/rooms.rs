//! What an owner's shells see besides the system: a home, a made-up `/etc` and programs, in a directory of the simulator's.
//!
//! A room lasts as long as its owner is on the machine; all of them end with the simulator. Who owns the home is whoever the
//! shell is outside of its namespaces.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use node_agent::exec::Run;

const RM: &str = "/usr/bin/rm";
const CHMOD: &str = "/usr/bin/chmod";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\n";
/// The files of a made-up `/etc`.
pub const ETC: [&str; 5] = ["passwd", "group", "hostname", "hosts", "nsswitch.conf"];

/// What is particular about a room.
pub struct Facts {
    pub username: String,
    pub hostname: String,
    /// The shell's ids as it sees them itself.
    pub uid: u32,
    /// Name and text of programs.
    pub programs: Vec<(&'static str, String)>,
}

/// Where it is on the real machine.
pub struct Room(PathBuf);

impl Room {
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    pub fn etc(&self, name: &str) -> PathBuf {
        self.0.join("etc").join(name)
    }

    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }
}

/// All rooms of a simulator. They are removed with it.
pub struct Rooms {
    dir: PathBuf,
    /// Homes belong to these ids, if not to the simulator's user.
    owner: Option<(u32, u32)>,
    changing: Mutex<()>,
}

impl Rooms {
    /// Others may pass through the directory and not look into it: the shell's user is one of them.
    pub fn open(owner: Option<(u32, u32)>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("gpuaas-node-sim-").permissions(Permissions::from_mode(0o711)).tempdir()?;
        // Whatever the umask is.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711))?;
        Ok(Self { dir: dir.keep(), owner, changing: Mutex::new(()) })
    }

    /// The room of this name; made when it is not there.
    pub fn prepare(&self, name: &str, facts: &Facts) -> io::Result<Room> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = self.dir.join(name);
        if !dir.exists() {
            // Whole or not at all.
            let draft = self.dir.join(format!(".{name}"));
            remove_tree(&draft)?;
            self.fill(&draft, facts)?;
            fs::rename(&draft, &dir)?;
        }
        Ok(Room(dir))
    }

    /// What is not there is not an error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        remove_tree(&self.dir.join(name))
    }

    fn fill(&self, dir: &Path, facts: &Facts) -> io::Result<()> {
        let Facts { username, hostname, uid, programs } = facts;
        make_dir(dir, 0o711)?;
        let room = Room(dir.to_owned());
        let home = room.home();
        make_dir(&home, 0o700)?;
        if let Some((uid, gid)) = self.owner {
            chown(&home, Some(uid), Some(gid))?;
        }
        make_dir(&dir.join("etc"), 0o755)?;
        for name in ETC {
            let text = match name {
                "passwd" => format!(
                    "{username}:x:{uid}:{uid}:{username}:/home/{username}:/bin/bash\n\
                     root:x:0:0:root:/root:/usr/sbin/nologin\n\
                     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                ),
                "group" => format!("{username}:x:{uid}:\nroot:x:0:\nnogroup:x:65534:\n"),
                "hostname" => format!("{hostname}\n"),
                "hosts" => format!("127.0.0.1 localhost {hostname}\n"),
                _ => NSSWITCH.to_owned(),
            };
            write_file(&room.etc(name), &text, 0o644)?;
        }
        make_dir(&room.programs(), 0o755)?;
        programs.iter().try_for_each(|(name, text)| write_file(&room.programs().join(name), text, 0o755))
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "homes of simulated nodes are left behind");
        }
    }
}

fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(mode))
}

fn write_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// By `rm`: however deep a user has nested directories, it takes neither stack nor open files of this process.
fn remove_tree(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let remove = || Run::new(RM.as_ref()).args(["-rf", "--one-file-system", "--"]).arg(dir).succeed();
    if remove().is_err() {
        // A user may have closed directories of its own.
        let _ = Run::new(CHMOD.as_ref()).args(["-R", "u+rwX", "--"]).arg(dir).run();
        remove().map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            username: "alice".to_owned(),
            hostname: "sim-1".to_owned(),
            uid: 1000,
            programs: vec![("nvidia-smi", "#!/bin/sh\n".to_owned())],
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_room_is_kept_until_it_is_removed_and_all_go_with_the_simulator() {
        let rooms = Rooms::open(None).unwrap();
        let room = rooms.prepare("a", &facts()).unwrap();
        assert!(fs::read_to_string(room.etc("passwd")).unwrap().starts_with("alice:x:1000:1000:"));
        assert_eq!((mode(&rooms.dir), mode(&room.home())), (0o711, 0o700));
        assert_eq!((mode(&room.etc("group")), mode(&room.programs().join("nvidia-smi"))), (0o644, 0o755));
        fs::write(room.home().join("kept"), "").unwrap();
        assert!(rooms.prepare("a", &facts()).unwrap().home().join("kept").exists());

        // Closed by its user.
        make_dir(&room.home().join("closed"), 0o700).unwrap();
        fs::write(room.home().join("closed/file"), "").unwrap();
        fs::set_permissions(room.home().join("closed"), Permissions::from_mode(0o0)).unwrap();
        rooms.remove("a").unwrap();
        rooms.remove("a").unwrap();
        assert!(!room.home().exists());
        rooms.prepare("b", &facts()).unwrap();
        let dir = rooms.dir.clone();
        drop(rooms);
        assert!(!dir.exists());
    }
}
