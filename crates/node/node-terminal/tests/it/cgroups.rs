//! Control groups of sessions: who is in them, that nobody leaves them, and what an agent that was killed leaves in them.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use kernel::{Ambient, ids::NodeId};
use node_proto::grant::PtyAccess;
use node_terminal::end_leftovers;
use node_tunnel::frame::{CloseReason, Frame};

use super::{
    client::Client,
    kit::{Node, SOON, eventually},
    processes::{shell_with_processes, sleeping, unique_sleep},
};

/// What a process of its own is told: files that it writes and where it makes scopes.
const HOLDER: &str = "GPUAAS_TEST_SESSION_HOLDER";

/// The directory of this process's group.
fn own_group() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 ")).expect("there is a cgroup v2");
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    Path::new(line.split(' ').nth(4).unwrap()).join(path)
}

pub fn assert_writable() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests make control groups and need root: run make test as root"
    );
}

/// Those of a node's sessions.
pub fn of_node(node: NodeId) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(own_group()).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains(&node.to_string())).collect()
}

/// A group as `systemd` makes one for a login. Dropped, it is removed.
struct Scope(PathBuf);

impl Scope {
    fn new() -> Self {
        let scope = own_group().join(format!("session-{}.scope", Ambient::system().uuid()));
        std::fs::create_dir(&scope).unwrap();
        Self(scope)
    }

    fn has_processes(&self) -> bool {
        !std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap().is_empty()
    }

    /// What a program does that PAM moves into it, and then hides a process.
    fn script(&self, time: &str) -> String {
        let entrance = self.0.join("cgroup.procs");
        format!("echo $$ >{}; echo moved; env -i setsid -f sleep {time}; exec cat", entrance.display())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_root_cannot_leave_the_group_of_a_session() {
    assert_writable();
    let node = Node::new();
    let link = node.connect().await;
    let session = node.session("");
    let mut client = node.write(&link, session).await;
    let outside = own_group().join("cgroup.procs");
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let leave = format!("{user} sh -c 'echo 0 2>/dev/null >{} || echo stays inside'\r", outside.display());
    client.type_text(&leave).await;
    client.read_text("stays inside\r\n").await;
    let [group] = &of_node(node.id)[..] else { panic!("one group") };
    for name in ["", "cgroup.procs", "cgroup.threads", "cgroup.kill", "cgroup.subtree_control"] {
        let found = std::fs::metadata(group.join(name)).unwrap();
        assert_eq!((found.uid(), found.permissions().mode() & 0o022), (0, 0), "{name}");
    }
    node.sessions.stop().await;
    assert!(of_node(node.id).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_scope_of_its_login_ends_with_a_session() {
    assert_writable();
    for exits in [true, false] {
        let node = Node::new();
        let link = node.connect().await;
        let scope = Scope::new();
        let time = unique_sleep(Ambient::system().id());
        let session = node.session(&scope.script(&time));
        let mut client = node.write(&link, session).await;
        eventually("it hides", || sleeping(&time) == 1).await;
        client.read_text("moved").await;
        if exits {
            client.type_text("\r\u{4}").await;
            assert_eq!(client.finish().await, Frame::Exit { status: 0 });
        } else {
            let mut ending = Client::without_beginning(node.open(&link, session, PtyAccess::End).await);
            assert_eq!(ending.finish().await, Frame::Close { reason: CloseReason::Ended });
        }
        eventually("nothing is left", || sleeping(&time) == 0 && of_node(node.id).is_empty()).await;
        assert!(!scope.has_processes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_login_left_that_printed_nothing_ends_with_it() {
    assert_writable();
    let node = Node::new();
    let link = node.connect().await;
    let scope = Scope::new();
    let time = unique_sleep(Ambient::system().id());
    let entrance = scope.0.join("cgroup.procs");
    let hides = format!("env -i setsid -f sleep {time} <>/dev/null >&0 2>&1");
    let script = format!("echo $$ >{}; {hides}; exit 5", entrance.display());
    let mut client = node.write(&link, node.session(&script)).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 5 });
    eventually("nothing is left", || sleeping(&time) == 0 && of_node(node.id).is_empty()).await;
    assert!(!scope.has_processes());
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_processes_that_were_killed_are_removed_if_they_are_old_and_empty() {
    assert_writable();
    let made = |name: &str| {
        let dir = own_group().join(format!("{name}-{}", Ambient::system().uuid()));
        std::fs::create_dir(&dir).unwrap();
        dir
    };
    let age = |dir: &Path| {
        let before = std::fs::metadata(dir).unwrap().modified().unwrap() - Duration::from_secs(120);
        std::fs::File::open(dir).unwrap().set_modified(before).unwrap();
    };
    let [old, new] = [made("gpuaas-terminal-x"), made("gpuaas-terminal-x")];
    let foreign = made("other");
    age(&old);
    age(&foreign);
    let node = Node::new();
    let link = node.connect().await;
    let mut client = node.write(&link, node.session("exit 0")).await;
    assert_eq!(client.finish().await, Frame::Exit { status: 0 });
    let left = [&old, &new, &foreign].map(|dir| dir.exists());
    for dir in [old, new, foreign] {
        let _ = std::fs::remove_dir(dir);
    }
    assert_eq!(left, [false, true, true]);
}

/// Holds sessions in a process of its own.
struct Holder(Child);

impl Holder {
    fn start(dir: &Path) -> Self {
        #[allow(clippy::disallowed_methods, reason = "this very program")]
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "cgroups::holds_sessions_until_it_is_killed";
        let command = command.args(["--exact", test, "--nocapture"]).env(HOLDER, dir);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Not a test: what the process of its own does.
#[tokio::test(flavor = "multi_thread")]
async fn holds_sessions_until_it_is_killed() {
    let Some(dir) = std::env::var_os(HOLDER).map(PathBuf::from) else { return };
    let node = Node::new();
    let link = node.connect().await;
    let (_, time, _client) = shell_with_processes(&node, &link).await;
    let scope = Scope(std::fs::read_to_string(dir.join("scope")).unwrap().into());
    let in_scope = unique_sleep(Ambient::system().id());
    let mut moved = node.write(&link, node.session(&scope.script(&in_scope))).await;
    moved.read_text("moved").await;
    eventually("it hides", || sleeping(&in_scope) == 1).await;
    std::fs::write(dir.join("draft"), format!("{} {time} {in_scope}", node.id)).unwrap();
    std::fs::rename(dir.join("draft"), dir.join("held")).unwrap();
    tokio::time::sleep(SOON * 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_that_was_killed_left_is_ended_by_the_next_and_by_no_other() {
    assert_writable();
    let dir = tempfile::tempdir().unwrap();
    let scope = Scope::new();
    std::fs::write(dir.path().join("scope"), scope.0.to_str().unwrap()).unwrap();
    let held = dir.path().join("held");
    let holder = Holder::start(dir.path());
    eventually("it holds sessions", || held.exists()).await;
    drop(holder);
    let told = std::fs::read_to_string(held).unwrap();
    let [node, time, in_scope] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let node: NodeId = node.parse().unwrap();
    end_leftovers(NodeId::from(Ambient::system().uuid())).await;
    // The hangup of the terminals ended others.
    assert!(sleeping(time) >= 3, "what made a session of its own, with the marker and without");
    assert_eq!((sleeping(in_scope), of_node(node).len()), (1, 2));
    end_leftovers(node).await;
    assert_eq!((sleeping(time), sleeping(in_scope)), (0, 0));
    assert!(of_node(node).is_empty() && !scope.has_processes());
}
