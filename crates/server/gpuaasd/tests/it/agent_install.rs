//! The way that the documentation names: the script of the control plane, piped into a shell on a machine that runs
//! systemd, with the token on standard input. The machine is a container with a layer of its own over a plain Debian
//! and the network of the tests.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::json;
use testkit::{World, eventually, eventually_within, program};

use crate::tools::{command, tool};

/// Everything it mounts is its own and goes with it.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$LAB"
mkdir "$LAB/upper" "$LAB/work" "$LAB/root"
mount -t overlay -o "lowerdir=$BASE,upperdir=$LAB/upper,workdir=$LAB/work" overlay "$LAB/root"
mount -t tmpfs tmpfs /run
mkdir "$GROUP"
echo $$ >"$GROUP/cgroup.procs"
exec systemd-nspawn --quiet --directory="$LAB/root" --boot --register=no --keep-unit --console=pipe \
    --resolv-conf=off --timezone=off --machine="$NAME"
"#;

struct Machine {
    child: Child,
    group: String,
    _dir: tempfile::TempDir,
}

impl Machine {
    async fn boot() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make machines and need root: run make test as root"
        );
        let base = tool("node-rootfs/systemd");
        let dir = tempfile::Builder::new().prefix("gpuaas-machine-").tempdir().unwrap();
        let name = format!("gpuaas-{}", std::process::id());
        // Its services are grouped below a group of its own, where the kernel has one place for that or several.
        let groups = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"];
        let groups = groups
            .into_iter()
            .find(|dir| Path::new(dir).join("cgroup.procs").exists())
            .expect("control groups");
        let group = format!("{groups}/{name}");
        let child = command("unshare")
            .args(["--mount", "bash", "-c", BOOT])
            .env("LAB", dir.path())
            .env("BASE", base)
            .env("NAME", &name)
            .env("GROUP", &group)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a machine");
        let machine = Self { child, group, _dir: dir };
        eventually_within(Duration::from_secs(60), "the machine has booted", || async {
            let (_, said) = machine.sh("systemctl is-system-running", "");
            (said.contains("running") || said.contains("degraded")).then_some(())
        })
        .await;
        machine
    }

    /// The machine's first process, as it is numbered outside; not one of those that still prepare the boot.
    fn first(&self) -> Option<String> {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let child = children.split_whitespace().next()?;
        let program = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        (program.trim() == "systemd").then(|| child.to_owned())
    }

    /// A script inside, as root, with a line on standard input; gives whether it worked, and all output.
    fn sh(&self, script: &str, line: &str) -> (bool, String) {
        let Some(first) = self.first() else { return (false, "the machine does not run".to_owned()) };
        let mut child = command("nsenter")
            .args(["--target", &first, "--all", "--", "/bin/sh", "-c", script])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nsenter");
        let _ = writeln!(child.stdin.take().unwrap(), "{line}");
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).trim().to_owned())
    }

    #[track_caller]
    fn ok(&self, script: &str) -> String {
        let (done, said) = self.sh(script, "");
        assert!(done, "{script}: {said}");
        said
    }

    /// Runs the script of the control plane as the documentation says, while somebody looks at all processes.
    fn install(&self, url: &str, args: &str, token: &str) -> (bool, String) {
        let script = format!("sh -c \"$(curl -fsS {url}/install/agent.sh)\" install {args}");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut looks = 0;
                while !over.load(Ordering::SeqCst) {
                    assert_not_shown(token);
                    looks += 1;
                }
                looks
            });
            let done = self.sh(&script, token);
            over.store(true, Ordering::SeqCst);
            assert!(looking.join().unwrap() > 1, "nobody looked");
            done
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() && self.first().is_some() {
            println!("{}", self.sh("journalctl --no-pager -u gpuaas-agent | tail -50", "").1);
        }
        // The machine itself first, and with its first process all others: who booted it may go and leave it running.
        if let Some(first) = self.first().and_then(|pid| pid.parse().ok()) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Empty a moment after the last process is gone; innermost first.
        for _ in 0..100 {
            let _ = command("find")
                .args([self.group.as_str(), "-depth", "-type", "d", "-delete"])
                .stderr(Stdio::null())
                .status();
            if !Path::new(&self.group).exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// No process on this machine, inside or outside, shows the token in its arguments or its environment.
fn assert_not_shown(token: &str) {
    let shown = |path: std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(token.len()).any(|window| window == token.as_bytes())
    };
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        for place in ["cmdline", "environ"] {
            assert!(!shown(process.path().join(place)), "the token stands in {:?}/{place}", process.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_installed_by_one_command_and_its_agent_is_a_service_that_comes_back() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let programs = world.server.dir.path().join("data/programs");
    std::fs::create_dir_all(&programs).unwrap();
    let name = format!("gpuaas-agent-0.1.0-{}", std::env::consts::ARCH);
    std::fs::copy(program("gpuaas-agent"), programs.join(name)).unwrap();
    let node = world.created_node("gpu-01").await;
    let machine = Machine::boot().await;
    let args = format!("--node {} --hostname gpu-01", node.id);

    let (done, said) = machine.install(&world.server.base, &args, "gpuaas_nbt_guessed_by_somebody");
    assert!(!done && said.contains("enrolment failed"), "{said}");
    assert_eq!(machine.sh("systemctl is-active gpuaas-agent", "").1, "inactive");
    let (done, said) = machine.install(&world.server.base, &args, &node.token);
    assert!(done && said.contains("the agent runs"), "{said}");
    assert_eq!(
        machine.ok("systemctl is-active gpuaas-agent; systemctl is-enabled gpuaas-agent"),
        "active\nenabled"
    );
    assert_eq!(machine.ok("stat -c %a /var/lib/gpuaas-agent"), "700");
    eventually("the node was looked over", || async {
        let node = world.node(&node.id).await;
        (node["onboarding"]["state"] == "awaiting_approval").then_some(())
    })
    .await;
    let said = machine.ok("gpuaas-agent doctor");
    assert!(said.contains("responds and trusts this node"), "{said}");
    // The token is nowhere: not in a file, not in the machine's log.
    let search = format!(
        "grep -rlF {} /etc /var /usr/local /root /tmp /run 2>/dev/null; journalctl --no-pager | grep -cF {}",
        node.token, node.token
    );
    assert_eq!(machine.sh(&search, "").1, "0");

    // Killed, it is started again and goes on where it was.
    let pid = machine.ok("systemctl show --value -p MainPID gpuaas-agent");
    machine.ok(&format!("kill -9 {pid}"));
    eventually("there is another process", || async {
        let now = machine.ok("systemctl show --value -p MainPID gpuaas-agent");
        (now != pid && now != "0").then_some(())
    })
    .await;
    discover(&world, &node.id).await;

    // Once more over what is there, with a repair token: the old certificate counts no more.
    let repair =
        world.admin.post(&format!("/api/v1/platform/nodes/{}/repair-token", node.id), json!({})).await;
    let token = repair.expect(201)["token"].as_str().unwrap().to_owned();
    let (done, said) = machine.install(&world.server.base, &format!("{args} --repair"), &token);
    assert!(done && said.contains("the agent runs"), "{said}");
    discover(&world, &node.id).await;
    let listed =
        world.admin.get(&format!("/api/v1/platform/nodes/{}/certificates", node.id)).await.expect(200);
    let certificates = listed["items"].as_array().unwrap();
    let revoked = |n: usize| !certificates[n]["revoked_at"].is_null();
    assert_eq!((certificates.len(), revoked(0), revoked(1)), (2, false, true), "{listed}");

    update_is_undone(&world, &machine, &node.id, &programs).await;
}

/// A program that says the right version and does not run: the service manager and the program before put it right.
async fn update_is_undone(world: &World, machine: &Machine, node: &str, programs: &Path) {
    let name = format!("gpuaas-agent-9.9.9-{}", std::env::consts::ARCH);
    let broken = "#!/bin/sh\ncase \"$*\" in *version*) echo 9.9.9 ;; *) exit 1 ;; esac\n";
    std::fs::write(programs.join(name), broken).unwrap();
    let offered = world.admin.get("/api/v1/platform/agent-programs").await.expect(200);
    let found = offered["items"].as_array().unwrap().iter().find(|program| program["version"] == "9.9.9");
    let body = json!({ "sha256": found.unwrap()["sha256"] });
    let path = format!("/api/v1/platform/nodes/{node}/agent-update");
    let task = world.admin.post(&path, body).await.expect(202);
    let task = world.task_ended(task["id"].as_str().unwrap()).await;
    assert_eq!(task["outcome"]["output"]["rolled_back"], true, "{task}");
    assert_eq!(machine.ok("gpuaas-agent version"), "0.1.0");
    let log = machine.ok("journalctl --no-pager -u gpuaas-agent");
    assert!(log.contains("rolled back to the previous one"), "{log}");
    discover(world, node).await;
}

/// The node does something that it was asked for.
async fn discover(world: &World, node: &str) {
    let task =
        world.admin.post(&format!("/api/v1/platform/nodes/{node}/discover"), json!({})).await.expect(202);
    assert_eq!(world.task_ended(task["id"].as_str().unwrap()).await["state"], "succeeded");
}
