//! Health, readings and metrics of a simulated machine: plausible, and the same whenever they are asked for in
//! the same minute.

use node_proto::{
    catalog::{
        COLLECTED_PART_BYTES, CollectInput, CollectPart, CollectedPart, Collection, GpuReading,
        HealthProbeInput, HealthReport, ProbeCheck,
    },
    contract::{Finding, GpuMetrics, NodeMetrics},
};

use super::{Machine, devices::gpu_address};
use crate::drivers::{DiagDriver, Done, GpuDriver, Steps};

/// What the state directory's disk has left when it is not full.
const DISK_FREE_MIB: u64 = 840_000;

impl GpuDriver for Machine {
    fn readings(&self) -> Done<Vec<GpuReading>> {
        let Some(parts) = self.profile().parts().gpu else { return Ok(Vec::new()) };
        let reading = |(index, bus)| GpuReading {
            pci_address: gpu_address(bus),
            model: parts.marketed_as.to_owned(),
            driver: parts.driver_version.to_owned(),
            memory_mib: parts.memory_mib,
            temperature_celsius: Some(self.temperature(index)),
            utilization_percent: Some(0),
            ecc_uncorrected: Some(0),
        };
        Ok((0..).zip(parts.buses).map(reading).collect())
    }

    fn findings(&self) -> Done<Vec<Finding>> {
        let mut changing = self.changing();
        // Most often there are none, and nothing changes.
        Ok(if changing.findings.is_empty() { Vec::new() } else { std::mem::take(&mut changing.findings) })
    }
}

impl DiagDriver for Machine {
    fn probe(&self, input: &HealthProbeInput, steps: &dyn Steps) -> Done<HealthReport> {
        steps.begin("probe")?;
        let gpus = self.readings()?;
        let found = gpus.len();
        let full = self.changing().disk_full;
        let check = |name: &str, passed, detail: String| ProbeCheck { name: name.to_owned(), passed, detail };
        let checks = vec![
            check(
                "gpu_count",
                u32::try_from(found) == Ok(input.expected_gpus),
                format!("{found} GPUs found, {} expected", input.expected_gpus),
            ),
            check("gpu_driver", true, "all GPUs answer".to_owned()),
            check("memory", true, format!("{} MiB", self.profile().parts().memory_mib)),
            check("disk_space", !full, if full { "no space left" } else { "enough space" }.to_owned()),
            check("clock", true, "simulated".to_owned()),
        ];
        let passed = checks.iter().all(|check| check.passed);
        Ok(HealthReport { profile: input.profile, passed, checks, gpus })
    }

    fn collect(&self, input: &CollectInput, steps: &dyn Steps) -> Done<Collection> {
        steps.begin("collect")?;
        let texts: Vec<(CollectPart, String)> =
            input.parts.iter().map(|&part| (part, self.part_text(part))).collect();
        steps.begin("redact")?;
        let cut = |(part, text): (CollectPart, String)| {
            let truncated = text.len() > COLLECTED_PART_BYTES;
            let text = text.get(..COLLECTED_PART_BYTES).map_or(text.clone(), str::to_owned);
            CollectedPart { part, text, truncated }
        };
        Ok(Collection { parts: texts.into_iter().map(cut).collect() })
    }

    fn metrics(&self) -> NodeMetrics {
        let parts = self.profile().parts();
        let gpu = |(index, bus)| GpuMetrics {
            pci_address: gpu_address(bus),
            utilization_percent: 0,
            memory_used_mib: 4,
            temperature_celsius: self.temperature(index),
        };
        let gpus = parts.gpu.map(|gpus| (0..).zip(gpus.buses).map(gpu).collect()).unwrap_or_default();
        NodeMetrics {
            load_1m: f64::from(u32::try_from(self.trait_below(self.minute(), 200)).unwrap_or(0)) / 100.0,
            memory_used_mib: 12_000 + self.trait_below(self.minute() ^ 1, 2_000),
            state_disk_free_mib: if self.changing().disk_full { 0 } else { DISK_FREE_MIB },
            tasks_running: 0,
            gpus,
        }
    }

    fn findings(&self) -> Vec<Finding> {
        if !self.changing().disk_full {
            return Vec::new();
        }
        vec![Finding {
            code: "node.disk_full".to_owned(),
            subject: "node".to_owned(),
            message: "The disk is full.".to_owned(),
            observed_at: self.0.ambient.now(),
            evidence: serde_json::json!({ "free_mib": 0 }),
        }]
    }
}

impl Machine {
    /// Idle GPUs, each a little different, moving with the minutes.
    fn temperature(&self, index: u64) -> i32 {
        28 + i32::try_from(self.trait_below(self.minute() ^ (index << 8), 9)).unwrap_or(0)
    }

    fn minute(&self) -> u64 {
        u64::try_from(self.0.ambient.now().timestamp() / 60).unwrap_or(0)
    }

    fn part_text(&self, part: CollectPart) -> String {
        let parts = self.profile().parts();
        match part {
            CollectPart::AgentLog => "simulated agent\n".to_owned(),
            CollectPart::KernelLog => format!("[    0.000000] Linux version {} (simulated)\n", parts.kernel),
            CollectPart::Mounts => "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n".to_owned(),
            CollectPart::Memory => format!("MemTotal: {} kB\n", parts.memory_mib * 1024),
            CollectPart::GpuDriver => {
                parts.gpu.map(|gpu| format!("{}\n", gpu.driver_version)).unwrap_or_default()
            }
            CollectPart::Processes => "1 init\n".to_owned(),
        }
    }
}
