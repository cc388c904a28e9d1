//! Real shells on simulated machines: what they see, what they cannot reach, and that nothing is left of them.

mod kit;
// A terminal through a tunnel is the same on every node.
#[path = "../../../../node-agent/tests/it/drivers/terminal_kit.rs"]
mod terminal_kit;

use std::os::unix::fs::MetadataExt as _;

use kernel::{Ambient, ids::AllocationId};
use node_agent::{drivers::simulated::Profile, session::Streams as _};
use node_proto::grant::Owner;
use node_sim::terminals::{Confinement, Sandbox};
use node_tunnel::frame::{CloseReason, Frame};

use self::kit::{Node, SOON, Terminal};

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

/// Whoever is in it cannot get out.
async fn assert_confined(terminal: &mut Terminal, most_processes: &str) {
    assert!(!terminal.text.contains("no job control"), "{}", terminal.text);
    assert_eq!(
        terminal.prints("hostname; cat /etc/hostname; uname -n | wc -l").await,
        "sim-h100-8-1\nsim-h100-8-1\n1"
    );
    assert_eq!(
        terminal.prints("whoami; pwd; echo $HOME $USER $TERM").await,
        "alice\n/home/alice\n/home/alice alice xterm-256color"
    );
    assert_ne!(terminal.prints("id -u").await, "0");
    assert_ne!(terminal.prints("id -g").await, "0");
    assert_eq!(terminal.prints("id -G | wc -w").await, "1");
    let rights =
        terminal.prints("grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)' /proc/self/status").await;
    assert!(
        rights.lines().all(|line| line.ends_with("0000000000000000") || line == "NoNewPrivs:\t1"),
        "{rights}"
    );

    // The machine that the simulator runs on is not there.
    for path in
        ["/root", "/work", "/etc/shadow", "/sys/kernel", "/boot", "/home/bob", env!("CARGO_MANIFEST_DIR")]
    {
        let (_, status) = terminal.run(&format!("ls {path} 2>/dev/null")).await;
        assert_ne!(status, 0, "{path}");
    }
    for path in [
        "/x",
        "/etc/x",
        "/usr/x",
        "/usr/local/x",
        "/dev/x",
        "/home/x",
        "/opt/gpuaas/bin/x",
        "/proc/sys/kernel/hostname",
    ] {
        assert_eq!(terminal.run(&format!("(echo > {path}) 2>/dev/null")).await.1, 1, "{path}");
    }
    for path in ["~/x", "/tmp/x", "/dev/shm/x", "/var/tmp/x"] {
        assert_eq!(terminal.run(&format!("echo > {path}")).await.1, 0, "{path}");
    }
    let processes = terminal.prints("ls /proc | grep -c '^[0-9]'").await;
    assert!(processes.parse::<u32>().unwrap() < 10, "{processes}");
    assert_eq!(
        terminal.prints("tail -n +2 /proc/net/route; tail -n +3 /proc/net/dev | cut -d: -f1").await.trim(),
        "lo"
    );
    assert_eq!(terminal.run("(exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null").await.1, 1);
    let names = terminal.prints("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
    assert_eq!(
        names,
        "GPUAAS_TERMINAL HOME LANG LOGNAME OLDPWD PATH PS1 PWD SHELL SHLVL TERM USER _"
            .replace("OLDPWD ", "")
    );
    assert_eq!(terminal.prints("ulimit -n; ulimit -v; ulimit -c").await, "1024\n4194304\n0");
    assert_eq!(
        terminal.prints("ulimit -Su; ulimit -Hu").await,
        format!("{most_processes}\n{most_processes}")
    );
    let limits =
        terminal.prints("head -c 70m /dev/zero >/tmp/large 2>/dev/null || echo full; rm /tmp/large").await;
    assert_eq!(limits, "full");
}

#[tokio::test]
async fn a_shell_is_in_namespaces_of_its_own_and_belongs_to_nobody() {
    let node = Node::new(Profile::H100x8);
    let owner = node.lease_whole();
    let agent = node.agent().await;
    let mut terminal = agent.open(owner).await;
    assert!(terminal.text.contains("alice@sim-h100-8-1:~$ "), "{}", terminal.text);
    assert_confined(&mut terminal, "512").await;
    assert_ne!(terminal.run("unshare --user true 2>/dev/null").await.1, 0, "no namespaces below");
    let processes = node.processes();
    assert!(!processes.is_empty());
    for pid in processes {
        // One that has just ended is nobody's.
        let uid = std::fs::metadata(format!("/proc/{pid}")).map_or(1, |meta| meta.uid());
        assert_ne!(uid, 0, "outside, too, it is not root");
    }
    agent.streams.stop().await;
}

#[tokio::test]
async fn a_shell_starts_no_more_processes_than_its_limit_and_goes_on_when_they_are_gone() {
    // More than the limit, and few enough to do no harm where there is none.
    const FORKS: &str = "n=0; while [ $n -lt 600 ]; do sleep 60 & n=$((n + 1)); done; echo all of them";
    let node = Node::new(Profile::H100x8);
    let (first, second) = (node.lease_slots(&[0]), node.lease_slots(&[1]));
    let agent = node.agent().await;
    let (mut terminal, mut other) = (agent.open(first).await, agent.open(second).await);
    // It ends at the first process that it cannot start, as `bash` does not.
    let (printed, status) = terminal.run(&format!("sh -c '{FORKS}' 2>/dev/null")).await;
    assert!(status != 0 && !printed.contains("all of them"), "{status} {printed}");
    let processes = node.processes().len();
    assert!((450..600).contains(&processes), "{processes}");
    assert_eq!(other.prints("/bin/echo others go on").await, "others go on");
    // All but the shell, and without another process.
    terminal.prints("kill -KILL -1").await;
    eventually("they are gone", || node.processes().len() < 100).await;
    assert_eq!(terminal.prints("/bin/echo it goes on").await, "it goes on");
    agent.streams.stop().await;
    assert!(node.processes().is_empty());
}

#[tokio::test]
async fn where_user_namespaces_are_not_allowed_root_makes_the_others() {
    assert!(nix::unistd::geteuid().is_root(), "the tests of nodes need root: run make test as root");
    let node = Node::with(Profile::H100x8, Sandbox::confined_by(Confinement::Root));
    let owner = node.lease_whole();
    let agent = node.agent().await;
    let mut terminal = agent.open(owner).await;
    assert_confined(&mut terminal, "4096").await;
    assert_eq!(terminal.prints("id -u; readlink /proc/self/ns/user").await, {
        let link = std::fs::read_link("/proc/self/ns/user").unwrap();
        format!("65534\n{}", link.display())
    });
    agent.streams.stop().await;
    assert!(node.processes().is_empty());
}

#[tokio::test]
async fn an_owner_sees_the_gpus_of_its_allocation_and_no_others() {
    const QUERY: &str = "nvidia-smi --query-gpu=index,uuid --format=csv,noheader";
    let node = Node::new(Profile::H100x8);
    let (first, second) = (node.lease_slots(&[0]), node.lease_slots(&[2, 5]));
    let agent = node.agent().await;
    let mut seen = Vec::new();
    for (owner, count) in [(first, 1), (second, 2)] {
        let mut terminal = agent.open(owner).await;
        assert_eq!(terminal.prints("whoami; command -v nvidia-smi").await, "bob\n/opt/gpuaas/bin/nvidia-smi");
        let listed = terminal.prints("nvidia-smi -L").await;
        let tenant = node.machine.tenant(&owner.to_string()).unwrap();
        let expected: Vec<String> = (0..)
            .zip(&tenant.gpus)
            .map(|(index, gpu)| format!("GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {})", gpu.uuid))
            .collect();
        assert_eq!((listed.lines().count(), listed), (count, expected.join("\n")));
        let rows = terminal.prints(QUERY).await;
        let uuid = |row: &str| row.split_once(", ").unwrap_or_else(|| panic!("{rows:?}")).1.to_owned();
        seen.extend(rows.lines().map(uuid));
        let (table, status) = terminal.run("nvidia-smi").await;
        assert!(status == 0 && table.contains("Driver Version: simulated"), "{table}");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "each GPU is one owner's: {seen:?}");
    agent.streams.stop().await;

    let whole = Node::new(Profile::H200x8);
    let owner = whole.lease_whole();
    let agent = whole.agent().await;
    let mut terminal = agent.open(owner).await;
    assert_eq!(terminal.prints("nvidia-smi -L | cut -d'(' -f1 | sort -u | wc -l").await, "8");
    assert!(terminal.prints("nvidia-smi -L").await.starts_with("GPU 0: NVIDIA H200 (UUID: GPU-"));
    agent.streams.stop().await;

    let amd = Node::new(Profile::Mi300xX8);
    let owner = amd.lease_whole();
    let agent = amd.agent().await;
    assert_eq!(agent.open(owner).await.run("nvidia-smi 2>/dev/null").await.1, 127);
    agent.streams.stop().await;
}

#[tokio::test]
async fn only_owners_on_this_machine_get_a_shell() {
    let node = Node::new(Profile::H100x8);
    let agent = node.agent().await;
    let stranger: AllocationId = Ambient::system().id();
    assert_eq!(agent.refused(stranger).await, "no_such_owner");
    assert_eq!(agent.open_as(Owner::Node).await.err().unwrap(), "not_supported");
    assert!(node.room(stranger).is_none());
    // Accounts that were kept before it was known whose they are.
    assert!(node.machine.tenant("").is_none());
}

#[tokio::test]
async fn keys_of_the_terminal_reach_the_program_in_the_foreground() {
    let node = Node::new(Profile::Cpu);
    let owner = node.lease_whole();
    let agent = node.agent().await;
    let mut terminal = agent.open(owner).await;
    for (key, status) in [("\u{3}", 130), ("\u{1a}", 148)] {
        terminal.text.clear();
        terminal.type_text("sh -c 'echo sta\"\"rted; exec sleep 1000'\n").await;
        terminal.read(|text| text.contains("started").then_some(())).await;
        terminal.text.clear();
        terminal.type_text(key).await;
        terminal.read(|text| text.contains("$ ").then_some(())).await;
        assert_eq!(terminal.prints("echo status $?").await, format!("status {status}"));
    }
    assert!(terminal.prints("jobs").await.contains("Stopped"));
    agent.streams.stop().await;
}

#[tokio::test]
async fn an_owner_that_leaves_takes_its_processes_and_its_home_along() {
    let node = Node::new(Profile::H100x8);
    let (leaves, stays) = (node.lease_slots(&[0]), node.lease_slots(&[1]));
    let agent = node.agent().await;
    let mut staying = agent.open(stays).await;
    staying.prints("echo kept > file").await;
    let others = node.processes().len();
    let mut terminal = agent.open(leaves).await;
    terminal.prints("mkdir -m 0 closed; trap '' HUP TERM; setsid sleep 1000 & sleep 1000 & true").await;
    assert!(node.processes().len() > others);
    assert!(node.room(leaves).is_some());

    agent.streams.end_owner(&leaves.to_string()).await;
    assert_eq!(terminal.closed().await, Frame::Close { reason: CloseReason::Ended });
    eventually("no process is left", || node.processes().len() == others).await;
    assert!(node.room(leaves).is_none());
    assert_eq!(agent.streams.count(), 1);
    assert_eq!(staying.prints("cat file").await, "kept");
    agent.streams.stop().await;
    assert!(node.processes().is_empty());
}

#[tokio::test]
async fn sessions_end_with_the_agent_and_homes_with_the_simulator() {
    let node = Node::new(Profile::H100x8);
    let owner = node.lease_whole();
    let agent = node.agent().await;
    assert_eq!((agent.streams.count(), node.room(owner)), (0, None), "nothing is made beforehand");
    let mut terminal = agent.open(owner).await;
    terminal.prints("echo mine > file; sleep 1000 & true").await;
    agent.streams.stop().await;
    assert_eq!(terminal.closed().await, Frame::Close { reason: CloseReason::Stopping });
    assert!(node.processes().is_empty());
    assert_eq!(agent.refused(owner).await, "stopping");

    let next = node.agent().await;
    assert_eq!(next.open(owner).await.prints("cat file").await, "mine");
    next.streams.stop().await;
    let room = node.room(owner).unwrap();
    // Tunnels hold the streams until they have noticed their end.
    let simulator = room.parent().unwrap().to_owned();
    drop((agent, next, node, terminal));
    eventually("its directory is gone", || !simulator.exists()).await;
}

/// The kernel tells a program of the end of the thread that started it, and threads that start programs come and go.
#[test]
fn a_shell_outlives_the_thread_that_started_it() {
    const NAME: &str = "starts-shells";
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let keep = std::time::Duration::from_millis(100);
    let runtime = builder.enable_all().thread_name(NAME).thread_keep_alive(keep).build().unwrap();
    runtime.block_on(async {
        let node = Node::new(Profile::Cpu);
        let owner = node.lease_whole();
        let agent = node.agent().await;
        let mut terminal = agent.open(owner).await;
        let is_one = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == NAME)
        };
        eventually("the threads are gone", || {
            !std::fs::read_dir("/proc/self/task").unwrap().flatten().any(is_one)
        })
        .await;
        assert_eq!(terminal.prints("echo alive").await, "alive");
        agent.streams.stop().await;
    });
}
