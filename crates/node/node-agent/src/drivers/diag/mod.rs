//! Checks, collections and metrics. It reads; it changes nothing, and disturbs no tenant.

mod collect;
mod probe;

use std::{path::PathBuf, sync::Arc};

use kernel::Ambient;
use node_proto::{
    catalog::{CollectInput, Collection, HealthProbeInput, HealthReport},
    contract::{Finding, NodeMetrics},
};
use serde_json::json;

use super::{DiagDriver, Done, Steps, files::read_bounded, gpu::RealGpu};
use crate::config::{Programs, Roots};

const MIB: u64 = 1024 * 1024;

pub struct RealDiag {
    ambient: Ambient,
    roots: Roots,
    programs: Programs,
    state_dir: PathBuf,
    gpu: Arc<RealGpu>,
}

impl RealDiag {
    pub fn new(
        ambient: Ambient,
        roots: Roots,
        programs: Programs,
        state_dir: PathBuf,
        gpu: Arc<RealGpu>,
    ) -> Self {
        Self { ambient, roots, programs, state_dir, gpu }
    }

    /// A small file below `/proc`.
    fn proc_text(&self, file: &str) -> Option<String> {
        let (bytes, _) = read_bounded(&self.roots.proc.join(file), 64 * 1024).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A value of `/proc/meminfo` in MiB.
    fn memory_mib(&self, name: &str) -> Option<u64> {
        let text = self.proc_text("meminfo")?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
    }

    /// Free and total of the disk that holds the agent's state.
    fn disk_mib(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::statvfs(&self.state_dir).ok()?;
        let mib = |blocks: u64| blocks.saturating_mul(stat.f_frsize) / MIB;
        Some((mib(stat.f_bavail), mib(stat.f_blocks)))
    }
}

impl DiagDriver for RealDiag {
    fn probe(&self, input: &HealthProbeInput, steps: &dyn Steps) -> Done<HealthReport> {
        steps.begin("probe")?;
        Ok(self.check_all(input))
    }

    fn collect(&self, input: &CollectInput, steps: &dyn Steps) -> Done<Collection> {
        steps.begin("collect")?;
        let raw = self.gather(&input.parts);
        steps.begin("redact")?;
        Ok(collect::redacted(raw))
    }

    fn metrics(&self) -> NodeMetrics {
        let load =
            self.proc_text("loadavg").and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let used = self.memory_mib("MemTotal").zip(self.memory_mib("MemAvailable"));
        NodeMetrics {
            load_1m: load.filter(|load| load.is_finite()).unwrap_or(0.0),
            memory_used_mib: used.map_or(0, |(total, free)| total.saturating_sub(free)),
            state_disk_free_mib: self.disk_mib().map_or(0, |(free, _)| free),
            // The executor knows.
            tasks_running: 0,
            gpus: self.gpu.metrics(),
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let Some((free, total)) = self.disk_mib().filter(|disk| !probe::enough_space(*disk)) else {
            return Vec::new();
        };
        vec![Finding {
            code: "node.disk_full".to_owned(),
            subject: "node".to_owned(),
            message: format!("The disk of {} is nearly full.", self.state_dir.display()),
            observed_at: self.ambient.now(),
            evidence: json!({ "free_mib": free, "total_mib": total }),
        }]
    }
}
