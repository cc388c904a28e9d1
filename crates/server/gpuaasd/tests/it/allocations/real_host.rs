//! A whole machine, really: a host in namespaces with its own files, accounts, processes and sshd, the real agent on
//! it, and people who sign in with real keys. Only its GPUs are made up: a bus with two H200 that the host's driver
//! holds, without IOMMU and fabric, and the tool of their vendor. It shares the network of the tests.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use testkit::{CreatedNode, Tenant, World, eventually, free_port, invariants, program};

use crate::tools::{command, tool};

/// The host's first process: it mounts, moves in, starts sshd, and waits for its input to end. All that it mounts is
/// its own and goes with it, as do all processes inside.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$LAB/disk"
mkdir "$LAB/disk/upper" "$LAB/disk/aside" "$LAB/disk/root"
root="$LAB/disk/root"
mount -t overlay -o "lowerdir=$BASE,upperdir=$LAB/disk/upper,workdir=$LAB/disk/aside" overlay "$root"
mount -t proc proc "$root/proc"
mount --bind "$LAB/inside/meminfo" "$root/proc/meminfo"
mount --bind "$LAB/inside/tainted" "$root/proc/sys/kernel/tainted"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name major minor <<<"$node"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/sshd" "$root/lab"
mkdir -m 1777 "$root/run/lock"
mount --bind "$LAB/inside" "$root/lab"
cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old
hostname gpu-01
exec chroot . /bin/bash -c "
    set -e
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    /usr/sbin/sshd -o ListenAddress=127.0.0.1 -o MaxStartups=100 -p $PORT
    echo ready
    while read -r _; do :; done
"
"#;
const CONFIG: &str = "ssh_port = $SSH_PORT\nstate_dir = \"/var/lib/gpuaas-agent\"\n[roots]\nsysfs = \"/lab/sys\"\n\
                      [programs]\nnvidia_smi = \"/lab/nvidia-smi\"\n";
const SMI: &str = "#!/bin/sh\ncase \"$1\" in\n--query-compute-apps=pid) ;;\n*) for bus in 1B 3B; do \
                   echo \"00000000:$bus:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0\"; done ;;\nesac\n";
pub const SKU: &str = "h200-sxm-baremetal-2g";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Two GPUs that the host itself uses.
fn make_bus(sys: &Path) {
    write(&sys.join("devices/system/cpu/online"), "0-47\n");
    write(&sys.join("devices/system/node/online"), "0\n");
    write(&sys.join("devices/system/node/node0/cpulist"), "0-47\n");
    write(&sys.join("devices/system/node/node0/meminfo"), "Node 0 MemTotal:       536870912 kB\n");
    fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
    fs::create_dir_all(sys.join("bus/pci/drivers/nvidia")).unwrap();
    for address in ["0000:1b:00.0", "0000:3b:00.0"] {
        let dir = format!("devices/pci0000:10/{address}");
        for (name, value) in
            [("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200"), ("numa_node", "0")]
        {
            write(&sys.join(&dir).join(name), &format!("{value}\n"));
        }
        symlink("../../../bus/pci/drivers/nvidia", sys.join(&dir).join("driver")).unwrap();
        symlink(format!("../../../{dir}"), sys.join("bus/pci/devices").join(address)).unwrap();
    }
}

fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub struct Host {
    /// Ends with its input, and all that runs inside with it.
    first: Child,
    inner: String,
    agent: Option<Child>,
    port: u16,
    dir: tempfile::TempDir,
}

pub struct Key {
    pub file: PathBuf,
    pub public: String,
}

impl Host {
    pub fn boot() -> Self {
        Self::boot_with(None)
    }

    /// A host whose agent takes this port for the one of its SSH server.
    pub fn boot_with(ssh_port: Option<u16>) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests make machines in namespaces and need root: run make test as root"
        );
        let dir = tempfile::Builder::new().prefix("gpuaas-host-").tempdir().unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(dir.path().join("disk")).unwrap();
        make_bus(&inside.join("sys"));
        let port = free_port();
        let ssh_port = ssh_port.unwrap_or(port);
        write(&inside.join("agent.toml"), &CONFIG.replace("$SSH_PORT", &ssh_port.to_string()));
        // What the tests leave free of the memory, and what the kernel went through, is not this machine's.
        write(&inside.join("meminfo"), "MemTotal: 536870912 kB\nMemFree: 1 kB\nMemAvailable: 500000000 kB\n");
        write(&inside.join("tainted"), "0\n");
        write(&inside.join("nvidia-smi"), SMI);
        make_executable(&inside.join("nvidia-smi"));
        fs::copy(program("gpuaas-agent"), inside.join("gpuaas-agent")).unwrap();
        let mut first = command("unshare")
            .args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "--"])
            .args(["/bin/bash", "-c", BOOT])
            .env("LAB", dir.path())
            .env("BASE", tool("node-rootfs/base"))
            .env("PORT", port.to_string())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(first.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "ready", "the host does not start (see above)");
        let pid = first.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let inner = children.split_whitespace().next().unwrap().to_owned();
        Self { first, inner, agent: None, port, dir }
    }

    /// A program inside, as root.
    fn root(&self, program: &str) -> Command {
        let mut inside = command("nsenter");
        inside
            .args(["--target", &self.inner, "--mount", "--uts", "--ipc", "--pid", "--", program])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        inside
    }

    pub fn sh(&self, script: &str) -> String {
        let ran = self.root("/bin/bash").args(["-c", script]).output().unwrap();
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).trim().to_owned()
    }

    /// Joins with the token on standard input, and runs.
    fn start_agent(&mut self, node: &CreatedNode) {
        let join = |name: &str| node.join[name].as_str().unwrap().to_owned();
        let roots: Vec<&str> =
            node.join["root_sha256"].as_array().unwrap().iter().filter_map(|root| root.as_str()).collect();
        let agent = || {
            let mut agent = self.root("/lab/gpuaas-agent");
            agent.args(["--config", "/lab/agent.toml"]);
            agent
        };
        let mut joining = agent()
            .args(["enroll", "--url", &join("url"), "--node-id", &join("node_id")])
            .args(["--hostname", &join("hostname"), "--root-sha256", &roots.join(",")])
            .args(["--keyset-key", &join("keyset_key")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(joining.stdin.take().unwrap(), "{}", node.token).unwrap();
        assert!(joining.wait().unwrap().success(), "the agent does not join (see above)");
        self.run_agent();
    }

    pub fn run_agent(&mut self) {
        let log =
            fs::File::options().create(true).append(true).open(self.dir.path().join("agent.log")).unwrap();
        let errors = log.try_clone().unwrap();
        let mut agent = self.root("/lab/gpuaas-agent");
        agent.args(["--config", "/lab/agent.toml", "run"]);
        self.agent = Some(agent.stdout(log).stderr(errors).spawn().unwrap());
    }

    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// As this machine counts processes.
    pub fn agent_pid(&self) -> u32 {
        let entered = self.agent.as_ref().expect("the agent runs").id();
        let children = fs::read_to_string(format!("/proc/{entered}/task/{entered}/children")).unwrap();
        children.split_whitespace().next().map_or(entered, |child| child.parse().unwrap())
    }

    /// The node is away until its agent runs again.
    pub fn kill_agent(&mut self) {
        // Inside, where no other process has this name.
        self.sh("for c in /proc/[0-9]*/comm; do [ \"$(cat $c)\" = gpuaas-agent ] && d=${c%/comm} && kill -KILL ${d#/proc/}; done");
        if let Some(mut agent) = self.agent.take() {
            agent.wait().unwrap();
        }
    }

    pub fn key(&self, name: &str) -> Key {
        let file = self.dir.path().join(name);
        let made = command("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
            .arg(&file)
            .status()
            .unwrap();
        assert!(made.success());
        let public = fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned();
        Key { file, public }
    }

    /// Signs in and runs a script; an error tells what ssh said.
    pub fn ssh(&self, user: &str, key: &Key, script: &str) -> Result<String, String> {
        let mut ssh = command("ssh");
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
        ssh.args(["-F", "none", "-p", &self.port.to_string(), "-i"]).arg(&key.file);
        let ran = ssh.arg(format!("{user}@127.0.0.1")).arg(script).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }

    #[track_caller]
    fn assert_refused(&self, user: &str, key: &Key) {
        let said = self.ssh(user, key, "true").unwrap_err();
        assert!(said.contains("Permission denied"), "{said}");
    }

    /// The processes of a user that are not just waiting to be forgotten.
    pub fn processes(&self, uid: &str) -> String {
        self.sh(&format!(
            "for s in /proc/[0-9]*/status; do grep -qE '^Uid:.*\\b{uid}\\b' $s 2>/dev/null || continue
             grep -q '^State:.Z' $s || head -1 $s; done"
        ))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default();
            println!("the agent's log:\n{log}");
        }
        drop(self.first.stdin.take());
        let _ = self.first.kill();
        let _ = self.first.wait();
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.wait();
        }
    }
}

/// The host as an active node that is sold whole, and a product that fits it. Gives the node.
pub async fn sell(world: &World, host: &mut Host) -> String {
    let node = world.created_node("gpu-01").await;
    let path = format!("/api/v1/platform/nodes/{}", node.id);
    host.start_agent(&node);
    eventually("the node was looked over", || async {
        (world.node(&node.id).await["onboarding"]["state"] == "awaiting_approval").then_some(())
    })
    .await;
    // Its drivers hold the GPUs: no part of it can be sold, but the whole machine can.
    let approve = format!("{path}/slots/approve");
    let all = json!({ "all_ready": true });
    let refused = world.admin.post(&approve, all.clone()).await;
    assert!(refused.status == 422 && refused.text.contains("driver_bound"), "{}", refused.text);
    let change = json!({ "serves": "baremetal", "ssh_host": "127.0.0.1", "ssh_port": host.port });
    let changed = world.admin.patch(&path, change).await.expect(200);
    assert_eq!(changed["serves"], "baremetal");
    world.admin.post(&approve, all).await.expect(202);
    eventually("the node is active", || async {
        (world.node_state(&node.id).await == "active").then_some(())
    })
    .await;
    let sku = json!({
        "sku": SKU, "vendor": "nvidia", "display_name": "Two H200, the whole machine", "shape": "baremetal",
        "slot_model": "H200", "gpus_total": 2, "allowed_gpu_counts": [2],
        "price": { "unit": "node_hour", "unit_price_minor": 700, "currency": "USD" },
    });
    world.admin.post("/api/v1/platform/skus", sku).await.expect(201);
    assert_eq!(world.free(SKU).await, 1);
    node.id
}

/// Two people of one project with a key each.
pub async fn colleagues(world: &World, keys: [&Key; 2]) -> [Tenant; 2] {
    let org = world.org("acme").await;
    world.fund(&org, 10_000).await;
    let project = world.project(&org, "lab").await;
    let mut people = Vec::new();
    for (name, key) in ["bo", "cy"].into_iter().zip(keys) {
        let person = world.person(name).await;
        person.add_key("laptop", &key.public).await;
        world.join(&person, &org, "member").await;
        let path = format!("/api/v1/projects/{project}/members/{}", person.id);
        world.admin.put(&path, json!({ "role": "member" })).await.expect(200);
        people.push(Tenant { person, project: project.clone() });
    }
    people.try_into().unwrap_or_else(|_| panic!("two people"))
}

/// Where to sign in, as the allocation tells; gives the user.
pub async fn user_of(tenant: &Tenant, id: &str, host: &Host) -> String {
    let connection = tenant.get(id).await["connection"].clone();
    assert_eq!((&connection["ssh_host"], &connection["ssh_port"]), (&json!("127.0.0.1"), &json!(host.port)));
    connection["username"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_to_a_machine_while_it_is_theirs_and_nothing_of_them_is_left_when_it_is_not() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut host = Host::boot();
    sell(&world, &mut host).await;
    let (his, hers) = (host.key("his"), host.key("hers"));
    let [bo, cy] = colleagues(&world, [&his, &hers]).await;

    let id = bo.active(json!({ "sku": SKU })).await;
    assert_eq!(world.free(SKU).await, 0);
    let user = user_of(&bo, &id, &host).await;
    assert_eq!(host.ssh(&user, &his, "whoami").unwrap(), user);
    host.assert_refused(&user, &hers);
    host.assert_refused("root", &his);

    let grant = json!({ "user_id": cy.person.id });
    bo.api().post(&bo.path(&format!("/{id}/grants")), grant).await.expect(201);
    eventually("the machine has the keys", || async {
        (bo.get(&id).await["access_current"] == true).then_some(())
    })
    .await;
    assert_eq!(host.ssh(&user, &hers, "whoami").unwrap(), user);
    let uid = host.ssh(&user, &his, "id -u").unwrap();
    // What they leave behind: a process that outlives its session, and files.
    let mess =
        "setsid nohup sleep 1000 </dev/null >/dev/null 2>&1 & touch ~/secret /tmp/secret /dev/shm/secret";
    host.ssh(&user, &his, mess).unwrap();
    eventually("the process runs", || async { host.processes(&uid).contains("sleep").then_some(()) }).await;

    bo.release(&id).await;
    host.assert_refused(&user, &his);
    host.assert_refused(&user, &hers);
    assert_eq!(host.sh(&format!("getent passwd {user}; getent group {user}")), "");
    assert_eq!(host.processes(&uid), "");
    let files = "find / \\( -path /proc -o -path /lab \\) -prune -o \\( -uid $U -o -gid $U -o -name secret \\) -print";
    assert_eq!(host.sh(&files.replace("$U", &uid)), "");
    assert_eq!(world.free(SKU).await, 1);
    invariants::hold(&world.db).await;

    // The next tenant gets the machine, and those before do not get in.
    let next = cy.active(json!({ "sku": SKU })).await;
    let other = user_of(&cy, &next, &host).await;
    assert_eq!(host.ssh(&other, &hers, "whoami").unwrap(), other);
    host.assert_refused(&other, &his);
    cy.release(&next).await;
    host.assert_refused(&other, &hers);
    invariants::hold(&world.db).await;
}
