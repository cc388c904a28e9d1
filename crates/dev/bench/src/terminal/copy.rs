//! `scp` through the tunnel, beside `scp` straight to the same SSH server.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use super::{Bench, doors::Doors, host::Host};
use crate::{
    cpu, exec,
    machines::{launch, until},
    report::{Peer, Sample, median},
};

const SKU: &str = "h200-sxm-baremetal-2g";
const ONBOARDING: Duration = Duration::from_secs(120);
/// Of the rate of direct scp, at least.
const AIM: f64 = 0.7;
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "IdentitiesOnly=yes",
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "ConnectTimeout=10",
    "LogLevel=ERROR",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Tunnel,
    Direct,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Somebody who may sign in to a machine.
struct Access<'a> {
    doors: &'a Doors,
    host: &'a Host,
    dir: PathBuf,
    allocation: String,
    user: String,
}

impl Bench {
    pub async fn copy(&mut self, doors: &Doors) -> anyhow::Result<()> {
        if !nix::unistd::geteuid().is_root() {
            let text = "not measured: a host in namespaces needs root".to_owned();
            self.report.figure("scp through the tunnel ÷ straight", text, "≥ 0.70");
            return Ok(());
        }
        let dir = doors.machines.product.dir.path().join("host");
        let mut host = Host::boot(dir.clone())?;
        sell(doors, &mut host).await?;
        let access = Access::rent(doors, &host, dir).await?;
        let megabytes = f64::from(self.options.megabytes);
        access.make_file(self.options.megabytes)?;
        for (direction, what) in [(Direction::Up, "to the machine"), (Direction::Down, "from the machine")] {
            let (mut tunnel, mut direct) = (Vec::new(), Vec::new());
            for n in 0..=self.pairs {
                for (way, samples) in [(Way::Tunnel, &mut tunnel), (Way::Direct, &mut direct)] {
                    let sample = access.copy(way, direction, megabytes).await?;
                    // The first fills caches, and brings the file to the machine.
                    if n > 0 {
                        samples.push(sample);
                    }
                }
            }
            self.report.compare(
                &format!("a MB of scp of {megabytes} MB {what}"),
                median(&tunnel),
                &[Peer { name: "scp straight to its SSH server", sample: median(&direct), aim: Some(AIM) }],
            );
        }
        Ok(())
    }
}

/// Makes the host an active node that is sold whole, and a product that fits it.
async fn sell(doors: &Doors, host: &mut Host) -> anyhow::Result<()> {
    let operator = &doors.machines.operator;
    let api = operator.api();
    let node = operator.create("bench-host").await?;
    let path = format!("/api/v1/platform/nodes/{}", node.id);
    host.start_agent(&node).await?;
    let wait = async |what: &str, is_so: fn(&Value) -> bool| {
        let begun = Instant::now();
        loop {
            let seen = api.get(&path).await.expect(200);
            if is_so(&seen) {
                return Ok(());
            }
            if begun.elapsed() > ONBOARDING {
                bail!("the host is not {what}: {seen}\n{}", host.agent_log());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    wait("looked over", |node| node["onboarding"]["state"] == "awaiting_approval").await?;
    let change = json!({ "serves": "baremetal", "ssh_host": "127.0.0.1", "ssh_port": host.port });
    api.patch(&path, change).await.expect(200);
    api.post(&format!("{path}/slots/approve"), json!({ "all_ready": true })).await.expect(202);
    wait("active", |node| node["state"] == "active").await?;
    let sku = json!({
        "sku": SKU, "vendor": "nvidia", "display_name": "Two H200, the whole machine", "shape": "baremetal",
        "slot_model": "H200", "gpus_total": 2, "allowed_gpu_counts": [2],
        "price": { "unit": "node_hour", "unit_price_minor": 700, "currency": "USD" },
    });
    api.post("/api/v1/platform/skus", sku).await.expect(201);
    Ok(())
}

impl<'a> Access<'a> {
    async fn rent(doors: &'a Doors, host: &'a Host, dir: PathBuf) -> anyhow::Result<Self> {
        let mut keygen = exec::command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"]).arg(dir.join("key"));
        exec::output(keygen).await?;
        let public = std::fs::read_to_string(dir.join("key.pub"))?;
        let (api, project) = (doors.machines.operator.api(), &doors.machines.project);
        let key = json!({ "name": "scp", "public_key": public.trim() });
        api.post("/api/v1/me/ssh-keys", key).await.expect(201);
        let (allocation, _) = launch(api, project, json!({ "sku": SKU })).await?;
        until(api, project, &allocation, "active").await?;
        let seen = api.get(&doors.machines.path(&format!("/{allocation}"))).await.expect(200);
        let user =
            seen["connection"]["username"].as_str().context("an allocation without a user")?.to_owned();
        Ok(Self { doors, host, dir, allocation, user })
    }

    /// What is copied; nothing of it can be compressed.
    fn make_file(&self, megabytes: u32) -> anyhow::Result<()> {
        let random = std::fs::File::open("/dev/urandom")?;
        let mut bytes = std::io::Read::take(random, u64::from(megabytes) * 1_000_000);
        std::io::copy(&mut bytes, &mut std::fs::File::create(self.dir.join("file"))?)?;
        Ok(())
    }

    async fn copy(&self, way: Way, direction: Direction, megabytes: f64) -> anyhow::Result<Sample> {
        let machines = &self.doors.machines;
        let mut scp = exec::command("scp");
        scp.args(["-q", "-F", "none", "-P", &self.host.port.to_string(), "-i"]).arg(self.dir.join("key"));
        for option in OPTIONS {
            scp.args(["-o", option]);
        }
        if way == Way::Tunnel {
            let program = std::env::current_exe()?.with_file_name("gpuaas");
            ensure!(program.exists(), "build it first: cargo build --release -p cli");
            let proxy = format!("ProxyCommand={} ssh-proxy {}", program.display(), self.allocation);
            scp.args(["-o", &proxy]).env("HOME", &self.dir).env("GPUAAS_SERVER", &machines.product.base);
            scp.env("GPUAAS_TOKEN", machines.operator.token()).env("GPUAAS_PROJECT", &machines.project);
        }
        let there = format!("{}@127.0.0.1:file", self.user);
        match direction {
            Direction::Up => scp.arg(self.dir.join("file")).arg(there),
            Direction::Down => scp.arg(there).arg(self.dir.join("copy")),
        };
        let read = || {
            let [product, postgres, _] = machines.cpu();
            [product + self.host.agent_micros(), postgres, cpu::finished_children_micros()]
        };
        let (before, begun) = (read(), Instant::now());
        exec::output(scp).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = read();
        let spent = |n: usize| after[n].saturating_sub(before[n]) as f64 / megabytes;
        Ok(Sample {
            per_second: megabytes / seconds,
            product_cpu: spent(0),
            postgres_cpu: spent(1),
            client_cpu: spent(2),
        })
    }
}
