//! A machine for the real agent: made-up `/sys`, `/proc` and `/dev`, and a vendor's tool that counts how often a
//! probe asked it. It has two H200: one is free for virtual machines, the other is held by the host's driver.

use std::{
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{AgentProcess, CreatedNode, World, eventually};

/// What only the node knows, and nobody else may learn from its log.
pub const NODE_SECRET: &str = "hunter2hunter2hunter2";

pub struct Machine {
    pub node: CreatedNode,
    pub agent: AgentProcess,
    tree: PathBuf,
    config: String,
}

impl Machine {
    pub fn id(&self) -> &str {
        &self.node.id
    }

    /// A file of the made-up machine.
    pub fn path(&self, name: &str) -> PathBuf {
        self.tree.join(name)
    }

    /// How often a probe asked the vendor's tool for programs on the GPUs: the countable effect of a task.
    pub fn effects(&self) -> usize {
        std::fs::read_to_string(self.path("effects")).unwrap_or_default().lines().count()
    }

    /// From now on a probe stands still in the middle.
    pub fn hold(&self) {
        std::fs::write(self.path("hold"), "").expect("hold");
    }

    pub fn release(&self) {
        let _ = std::fs::remove_file(self.path("hold"));
    }

    /// From its next start on the agent finds the node listener at another address.
    pub fn use_url(&self, url: &str) {
        self.agent.configure(&format!("url = \"{url}\"\n{}", self.config));
    }

    /// From now on the machine's own clock is off by so many seconds, in all that the agent asks of it. Needs a
    /// library that stands between a program and the clock.
    pub fn skew(&mut self, seconds: i64) {
        let arch = std::env::consts::ARCH;
        let library = format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketime.so.1");
        assert!(Path::new(&library).exists(), "libfaketime is not there: run scripts/tools.sh nodes");
        let pairs = [
            ("LD_PRELOAD", library),
            ("FAKETIME", format!("{seconds:+}s")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ];
        self.agent.env = pairs.map(|(name, value)| (name.to_owned(), value)).to_vec();
        boot_time(&self.tree, seconds);
    }
}

/// When the kernel says it was booted, so that the wall clock of the machine fits its uptime.
fn boot_time(tree: &Path, skew: i64) {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<i64>().ok());
    let text = format!("btime {}\n", booted.expect("the time of the boot") + skew);
    std::fs::write(tree.join("proc/stat"), text).expect("write proc/stat");
}

fn file(tree: &Path, path: &str, content: &str) {
    let path = tree.join(path);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(&path, content).expect("write a file");
}

fn link(tree: &Path, path: &str, target: &str) {
    let path = tree.join(path);
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    symlink(target, &path).expect("make a link");
}

struct Pci<'a> {
    address: &'a str,
    /// Vendor, device and class in hex.
    id: [&'a str; 3],
    group: u32,
    driver: Option<&'a str>,
}

/// Below one bridge of the first NUMA node.
fn pci(tree: &Path, device: &Pci<'_>) -> String {
    let dir = format!("sys/devices/pci0000:10/0000:10:01.0/{}", device.address);
    for (name, value) in ["vendor", "device", "class"].into_iter().zip(device.id) {
        file(tree, &format!("{dir}/{name}"), &format!("0x{value}\n"));
    }
    file(tree, &format!("{dir}/numa_node"), "0\n");
    let group = device.group;
    link(tree, &format!("{dir}/iommu_group"), &format!("../../../../kernel/iommu_groups/{group}"));
    let member = format!("sys/kernel/iommu_groups/{group}/devices/{}", device.address);
    link(tree, &member, &format!("../../../../{}", &dir[4..]));
    if let Some(driver) = device.driver {
        link(tree, &format!("{dir}/driver"), &format!("../../../../bus/pci/drivers/{driver}"));
    }
    link(tree, &format!("sys/bus/pci/devices/{}", device.address), &format!("../../../{}", &dir[4..]));
    dir
}

fn build(tree: &Path) {
    file(tree, "proc/sys/kernel/hostname", "made-up\n");
    file(tree, "proc/sys/kernel/osrelease", "6.8.0-60-generic\n");
    file(tree, "proc/sys/kernel/tainted", "0\n");
    file(tree, "proc/sys/kernel/random/boot_id", "6f3c0f4e-8a4c-4d0e-9f0a-000000000001\n");
    file(tree, "proc/cmdline", "root=UUID=1 ro intel_iommu=on iommu=pt\n");
    file(tree, "proc/loadavg", "1.25 0.80 0.50 2/900 12345\n");
    file(tree, "proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    file(tree, "proc/meminfo", "MemTotal: 536870912 kB\nMemFree: 1 kB\nMemAvailable: 500000000 kB\n");
    let mounts = format!(
        "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
         23 22 0:50 / /data rw shared:2 - cifs //store/share rw,username=node,password={NODE_SECRET}\n"
    );
    file(tree, "proc/self/mountinfo", &mounts);
    link(tree, "proc/uptime", "/proc/uptime");
    boot_time(tree, 0);
    file(tree, "sys/devices/system/cpu/online", "0-47\n");
    file(tree, "sys/devices/system/node/online", "0\n");
    file(tree, "sys/devices/system/node/node0/cpulist", "0-47\n");
    file(tree, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       536870912 kB\n");
    let gpu = ["10de", "2335", "030200"];
    pci(tree, &Pci { address: "0000:1b:00.0", id: gpu, group: 1, driver: Some("vfio-pci") });
    pci(tree, &Pci { address: "0000:3b:00.0", id: gpu, group: 2, driver: Some("nvidia") });
    let nic =
        Pci { address: "0000:5b:00.0", id: ["15b3", "1021", "020700"], group: 3, driver: Some("mlx5_core") };
    let nic = pci(tree, &nic);
    file(tree, &format!("{nic}/infiniband/mlx5_5b/ports/1/link_layer"), "InfiniBand\n");
    file(tree, &format!("{nic}/sriov_totalvfs"), "2\n");
    for vf in 0..2_u32 {
        let address = format!("0000:5b:00.{}", vf + 1);
        let dir = pci(
            tree,
            &Pci { address: &address, id: ["15b3", "101e", "020700"], group: 10 + vf, driver: None },
        );
        link(tree, &format!("{dir}/physfn"), "../0000:5b:00.0");
        link(tree, &format!("{nic}/virtfn{vf}"), &format!("../{address}"));
    }
    for disk in 1..=2_u32 {
        let address = format!("0000:0{disk}:00.0");
        let id = ["144d", "a80a", "010802"];
        let controller = pci(tree, &Pci { address: &address, id, group: 20 + disk, driver: Some("nvme") });
        let dir = format!("{controller}/nvme/nvme{disk}/nvme{disk}n1");
        file(tree, &format!("{dir}/size"), "7501476528\n");
        file(tree, &format!("{dir}/dev"), &format!("259:{}\n", disk * 10));
        std::fs::create_dir_all(tree.join(format!("{dir}/holders"))).expect("a directory");
        link(tree, &format!("sys/block/nvme{disk}n1"), &format!("../{}", &dir[4..]));
        link(tree, &format!("dev/disk/by-id/nvme-ACME_3840G_S{disk:04}"), &format!("../../nvme{disk}n1"));
    }
}

/// Lists the GPU that the host holds. When a probe asks for programs on it, that is counted, and may be made to wait.
fn tool(tree: &Path) -> PathBuf {
    // What is in its path must not leave the node.
    let path = tree.join(format!("token={NODE_SECRET}/nvidia-smi"));
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in\n--query-compute-apps=pid)\n    echo asked >>'{tree}/effects'\n    \
         while [ -e '{tree}/hold' ]; do sleep 0.02; done ;;\n\
         *) echo '00000000:3B:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0' ;;\nesac\n",
        tree = tree.display()
    );
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    std::fs::write(&path, text).expect("write the tool");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    path
}

impl World {
    /// A created node and a machine for it, on which the agent was not started and has not joined.
    pub async fn machine(&self, hostname: &str) -> Machine {
        let node = self.created_node(hostname).await;
        let agent = AgentProcess::prepare("");
        let tree = agent.dir.path().join("machine");
        build(&tree);
        let config = format!(
            "log_level = \"debug\"\n[roots]\nroot = \"{tree}\"\nsysfs = \"{tree}/sys\"\nproc = \"{tree}/proc\"\ndev = \"{tree}/dev\"\n\
             [programs]\nnvidia_smi = \"{tool}\"\n",
            tree = tree.display(),
            tool = tool(&tree).display(),
        );
        agent.configure(&config);
        Machine { node, agent, tree, config }
    }

    /// The same with an agent that has joined, but does not run.
    pub async fn joined_machine(&self, hostname: &str) -> Machine {
        let machine = self.machine(hostname).await;
        let (joined, said) = machine.agent.join("enroll", &machine.node.join, &machine.node.token);
        assert!(joined, "{said}");
        machine
    }

    /// Until the discovery of a node was heard.
    pub async fn awaits_approval(&self, machine: &Machine) {
        eventually("the node was looked over", || async {
            let node = self.node(machine.id()).await;
            (node["onboarding"]["state"] == "awaiting_approval").then_some(())
        })
        .await;
    }

    /// Looked over, approved, proven: an active node whose agent runs.
    pub async fn active_machine(&self, hostname: &str) -> Machine {
        let mut machine = self.joined_machine(hostname).await;
        machine.agent.start();
        self.activate(&machine).await;
        machine
    }

    /// Approves what is ready of a node whose agent runs, and waits until it is active.
    pub async fn activate(&self, machine: &Machine) {
        self.awaits_approval(machine).await;
        let path = format!("/api/v1/platform/nodes/{}/slots/approve", machine.id());
        self.admin.post(&path, json!({ "all_ready": true })).await.expect(202);
        eventually("the node is active", || async {
            (self.node_state(machine.id()).await == "active").then_some(())
        })
        .await;
    }

    pub async fn node(&self, id: &str) -> Value {
        self.admin.get(&format!("/api/v1/platform/nodes/{id}")).await.expect(200)
    }

    pub async fn task(&self, id: &str) -> Value {
        self.admin.get(&format!("/api/v1/platform/tasks/{id}")).await.expect(200)
    }

    /// Has a node probed, which has an effect that can be counted; gives the task.
    pub async fn probe(&self, machine: &Machine) -> String {
        let path = format!("/api/v1/platform/nodes/{}/validate", machine.id());
        let task = self.admin.post(&path, json!({ "profile": "between_tenants" })).await.expect(202);
        task["id"].as_str().expect("an id").to_owned()
    }

    pub async fn task_is(&self, id: &str, state: &str) {
        eventually(&format!("{id} is {state}"), || async {
            (self.task(id).await["state"] == state).then_some(())
        })
        .await;
    }

    /// The task when it is over, however.
    pub async fn task_ended(&self, id: &str) -> Value {
        let limit = std::time::Duration::from_secs(60);
        crate::eventually_within(limit, &format!("{id} ends"), || async {
            let task = self.task(id).await;
            let over =
                matches!(task["state"].as_str(), Some("succeeded" | "failed" | "expired" | "cancelled"));
            over.then_some(task)
        })
        .await
    }

    /// Sets a policy of the whole platform, as an administrator does.
    pub async fn policy(&self, key: &str, value: i64) {
        let path = format!("/api/v1/platform/policies/{key}");
        self.admin.put(&path, json!({ "value": value })).await.expect(200);
    }
}
