//! A machine in namespaces: its own root file system, processes, users' tools, network and sshd.
//!
//! The root file system is a layer on the one that `scripts/node-rootfs.sh` makes. The network is a bridge in a
//! namespace of its own, so nothing reaches the interfaces of the machine that runs the tests. Everything lives in
//! the namespaces of two processes that end when their input is closed, so nothing is left behind, however a test
//! ends. Programs here are started by the tests, not by the agent.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

const LAB_ADDRESS: &str = "10.77.0.1/24";
const HOST_ADDRESS: &str = "10.77.0.2";

/// The machine's first process: it mounts, moves in, starts sshd and cron, and waits for its input to end.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$LAB/disk"
mkdir "$LAB/disk/upper" "$LAB/disk/aside" "$LAB/disk/root"
root="$LAB/disk/root"
mount -t overlay -o "lowerdir=$BASE,upperdir=$LAB/disk/upper,workdir=$LAB/disk/aside" overlay "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name major minor <<<"$node"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%%:*}" "$root/dev/${number#*:}"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/run/sshd" "$root/lab"
mkdir -m 1777 "$root/run/lock"
mount --bind "$LAB/inside" "$root/lab"
mount --bind "$DRIVER" "$root/lab/driver"
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old
hostname node-under-test
exec chroot . /bin/bash -c '
    set -e
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    ip link set lo up
    /usr/sbin/sshd
    /usr/sbin/cron
    echo ready
    while read -r _; do :; done
'
"#;

const LAB: &str = "set -e; ip link set lo up; ip link add br0 type bridge; ip address add \"$ADDRESS\" dev br0; \
                   ip link set br0 up; echo ready; while read -r _; do :; done";

// Tests start programs here and nowhere else.
#[allow(clippy::disallowed_methods)]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// A process in namespaces that ends when its input is closed.
struct Holder {
    child: Child,
    /// The first process inside.
    inner: u32,
}

impl Holder {
    fn start(kinds: &[&str], script: &str, variables: &[(&str, &Path)]) -> Self {
        let mut child = command("unshare")
            .args(kinds)
            .args(["--fork", "--kill-child=KILL", "--", "/bin/bash", "-c", script])
            .envs(variables.iter().map(|(name, value)| (*name, *value)))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let pid = child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let inner = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        let holder = Self { child, inner: inner.unwrap_or(0) };
        assert_eq!(
            said.trim(),
            "ready",
            "the namespaces could not be set up; the tests need root (see above)"
        );
        assert_ne!(holder.inner, 0);
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Dropped in this order: the host before its network.
pub struct Machine {
    host: Holder,
    lab: Holder,
    dir: tempfile::TempDir,
}

pub struct Key {
    file: PathBuf,
    pub public: String,
}

impl Machine {
    pub fn start() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests make machines in namespaces and need root: run make test as root"
        );
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/node-rootfs/base");
        assert!(
            base.join("usr/sbin/sshd").exists(),
            "there is no root file system for test nodes: run scripts/tools.sh nodes"
        );
        let dir = tempfile::tempdir().unwrap();
        for name in ["disk", "inside", "inside/lib"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let driver = std::env::current_exe().unwrap();
        std::fs::write(dir.path().join("inside/driver"), "").unwrap();
        copy_libraries(&driver, &dir.path().join("inside/lib"));

        let lab = Holder::start(&["--net", "--pid"], LAB, &[("ADDRESS", Path::new(LAB_ADDRESS))]);
        let base = base.canonicalize().unwrap();
        let variables = [("LAB", dir.path()), ("BASE", base.as_path()), ("DRIVER", driver.as_path())];
        let host = Holder::start(&["--net", "--mount", "--pid", "--uts", "--ipc"], BOOT, &variables);
        let machine = Self { host, lab, dir };
        let inner = machine.host.inner.to_string();
        let wire = ["link", "add", "host", "type", "veth", "peer", "name", "eth0", "netns", &inner];
        machine.in_lab("ip").args(wire).ok();
        machine.in_lab("ip").args(["link", "set", "host", "master", "br0", "up"]).ok();
        let address = format!("{HOST_ADDRESS}/24");
        machine.root("ip").args(["address", "add", &address, "dev", "eth0"]).ok();
        machine.root("ip").args(["link", "set", "eth0", "up"]).ok();
        machine
    }

    fn in_lab(&self, program: &str) -> Command {
        let mut command = command("nsenter");
        command.args(["--target", &self.lab.inner.to_string(), "--net", "--", program]);
        command
    }

    /// A program inside, as root.
    pub fn root(&self, program: &str) -> Command {
        let mut command = command("nsenter");
        command
            .args([
                "--target",
                &self.host.inner.to_string(),
                "--mount",
                "--uts",
                "--ipc",
                "--net",
                "--pid",
                "--",
                program,
            ])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    /// A script inside, as root; gives what it prints.
    pub fn sh(&self, script: &str) -> String {
        // The usual places by short names: H holds the homes, R is root's.
        let script = format!("H=/home R=/root; {script}");
        self.root("/bin/bash").args(["-c", &script]).ok()
    }

    /// This very program inside, to run a driver there: with its own libraries, since the machine may have others.
    pub fn driver(&self, request: &str) -> Output {
        let loader = std::fs::read_to_string(self.dir.path().join("inside/lib/loader")).unwrap();
        let mut command = self.root(&format!("/lab/lib/{loader}"));
        command
            .args([
                "--library-path",
                "/lab/lib",
                "/lab/driver",
                "--exact",
                "drivers::real_host::inside",
                "--nocapture",
            ])
            .env(INSIDE, request);
        command.output().unwrap()
    }

    pub fn key(&self, name: &str) -> Key {
        let file = self.dir.path().join(name);
        command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&file).ok();
        let public = std::fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned();
        Key { file, public }
    }

    /// Signs in from the lab and runs a script; an error tells what ssh said.
    pub fn ssh(&self, user: &str, key: &Key, script: &str) -> Result<String, String> {
        let mut ssh = self.in_lab("ssh");
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ConnectTimeout=10",
            "ServerAliveInterval=5",
            "LogLevel=ERROR",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.args(["-F", "none", "-i"]).arg(&key.file).arg(format!("{user}@{HOST_ADDRESS}")).arg("bash -s");
        let mut child =
            ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // When the sign-in is refused, nobody reads it.
        let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
        let ran = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }
}

pub const INSIDE: &str = "GPUAAS_TEST_INSIDE";

pub trait Succeeds {
    fn ok(&mut self) -> String;
}

impl Succeeds for Command {
    fn ok(&mut self) -> String {
        let ran = self.output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success(),
            "{:?} {:?}: {errors}",
            self.get_program(),
            self.get_args().collect::<Vec<_>>()
        );
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }
}

/// The libraries that a program needs, and the name of its loader in a file `loader`.
fn copy_libraries(program: &Path, to: &Path) {
    let listed = command("ldd").arg(program).ok();
    for path in listed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new) {
        let name = path.file_name().unwrap();
        std::fs::copy(path, to.join(name)).unwrap();
        if name.to_string_lossy().starts_with("ld-") {
            std::fs::write(to.join("loader"), name.to_string_lossy().as_bytes()).unwrap();
        }
    }
}
