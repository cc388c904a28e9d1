//! A host in namespaces with its own files, accounts, processes and sshd, and the real agent on it. Only its GPUs are made
//! up. It shares the network of the benchmark.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use testkit::free_port;

use crate::{
    cpu, exec,
    fleet::{agent, operator::NewNode},
};

const BOOT: &str = include_str!("host_boot.sh");
const SMI: &str = "#!/bin/sh\ncase \"$1\" in\n--query-compute-apps=pid) ;;\n*) for bus in 1B 3B; do \
                   echo \"00000000:$bus:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0\"; done ;;\nesac\n";

pub struct Host {
    /// Ends with its input, and all that runs inside with it.
    first: Child,
    inner: u32,
    agent: Option<exec::Running>,
    pub port: u16,
    dir: PathBuf,
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    Ok(fs::write(path, text)?)
}

/// Two GPUs that the host itself uses.
fn make_bus(sys: &Path) -> anyhow::Result<()> {
    write(&sys.join("devices/system/cpu/online"), "0-47\n")?;
    write(&sys.join("devices/system/node/online"), "0\n")?;
    write(&sys.join("devices/system/node/node0/cpulist"), "0-47\n")?;
    write(&sys.join("devices/system/node/node0/meminfo"), "Node 0 MemTotal:       536870912 kB\n")?;
    fs::create_dir_all(sys.join("bus/pci/devices"))?;
    fs::create_dir_all(sys.join("bus/pci/drivers/nvidia"))?;
    for address in ["0000:1b:00.0", "0000:3b:00.0"] {
        let dir = format!("devices/pci0000:10/{address}");
        for (name, value) in
            [("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200"), ("numa_node", "0")]
        {
            write(&sys.join(&dir).join(name), &format!("{value}\n"))?;
        }
        symlink("../../../bus/pci/drivers/nvidia", sys.join(&dir).join("driver"))?;
        symlink(format!("../../../{dir}"), sys.join("bus/pci/devices").join(address))?;
    }
    Ok(())
}

/// The static agent, or the one of the same build.
fn find_agent() -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("gpuaas-agent");
    agent::newest_static().or_else(|error| if beside.exists() { Ok(beside) } else { Err(error) })
}

impl Host {
    pub fn boot(dir: PathBuf) -> anyhow::Result<Self> {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/node-rootfs/base");
        ensure!(base.join("usr/sbin/sshd").exists(), "install it first: scripts/tools.sh nodes");
        let (inside, port) = (dir.join("inside"), free_port());
        fs::create_dir_all(dir.join("disk"))?;
        make_bus(&inside.join("sys"))?;
        let config = format!(
            "state_dir = \"/var/lib/gpuaas-agent\"\nssh_port = {port}\n[roots]\nsysfs = \"/lab/sys\"\n\
             [programs]\nnvidia_smi = \"/lab/nvidia-smi\"\n"
        );
        write(&inside.join("agent.toml"), &config)?;
        // What the benchmark leaves free of the memory, and what the kernel went through, is not this machine's.
        write(
            &inside.join("meminfo"),
            "MemTotal: 536870912 kB\nMemFree: 1 kB\nMemAvailable: 500000000 kB\n",
        )?;
        write(&inside.join("tainted"), "0\n")?;
        write(&inside.join("nvidia-smi"), SMI)?;
        fs::set_permissions(inside.join("nvidia-smi"), fs::Permissions::from_mode(0o755))?;
        fs::copy(find_agent()?, inside.join("gpuaas-agent"))?;
        let mut command = exec::command("unshare");
        command.args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "--"]);
        command.args(["/bin/bash", "-c", BOOT]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("LAB", &dir).env("BASE", base).env("PORT", port.to_string());
        let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = first.stdout.take().context("a host without output")?;
        let mut host = Self { first, inner: 0, agent: None, port, dir };
        let mut said = String::new();
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said.trim() == "ready", "the host does not start (see above)");
        host.inner = cpu::children(host.first.id()).first().copied().context("a host without processes")?;
        Ok(host)
    }

    fn agent_command(&self) -> Command {
        let mut inside = exec::command("nsenter");
        inside
            .args(["--target", &self.inner.to_string(), "--mount", "--uts", "--ipc", "--pid", "--"])
            .args(["/lab/gpuaas-agent", "--config", "/lab/agent.toml"])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        inside
    }

    /// Joins, and runs.
    pub async fn start_agent(&mut self, node: &NewNode) -> anyhow::Result<()> {
        let mut enroll = self.agent_command();
        enroll.args(agent::enroll_arguments(node)?);
        exec::output_with(enroll, format!("{}\n", node.token)).await?;
        let log = fs::File::create(self.dir.join("agent.log"))?;
        let mut run = self.agent_command();
        run.arg("run").stdout(log.try_clone()?).stderr(log);
        self.agent = Some(exec::Running::start(run)?);
        Ok(())
    }

    /// CPU microseconds of the agent: the only child of the process that moved it into the namespaces.
    pub fn agent_micros(&self) -> u64 {
        let outer = self.agent.as_ref().map_or(0, exec::Running::pid);
        cpu::children(outer).into_iter().map(cpu::process_micros).sum()
    }

    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.dir.join("agent.log")).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.first.stdin.take());
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}
