//! The GPUs as their vendor's tools and the kernel log see them.
//!
//! The tools are run only when there is a GPU that the host itself uses: one that is handed to a virtual machine
//! is not theirs to ask. What they print is read strictly: a line that is not understood is an error, not a guess.

mod amd;
pub(crate) mod kernel_log;
mod nvidia;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use kernel::Ambient;
use node_proto::{
    catalog::{Gpu, GpuReading, GpuVendor},
    contract::{FINDINGS_PER_HEARTBEAT, Finding, GpuMetrics},
};
use serde_json::json;

use super::{Done, DriverError, GpuDriver, devices::RealDevices};
use crate::config::{Programs, Roots};

/// One look serves the readings, findings and metrics of one heartbeat.
const FRESH: Duration = Duration::from_secs(5);
const TOOL_TIMEOUT: Duration = Duration::from_secs(25);
const GPUS_AT_MOST: usize = 256;
const NVIDIA_LIMIT_CELSIUS: i32 = 90;
const AMD_LIMIT_CELSIUS: i32 = 100;

/// A reading, and what only the metrics show.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    reading: GpuReading,
    memory_used_mib: u64,
    vendor: GpuVendor,
}

pub struct RealGpu {
    roots: Roots,
    programs: Programs,
    ambient: Ambient,
    log: Mutex<kernel_log::Reader>,
    /// The log could not be read the last time, and that was said.
    log_fails: AtomicBool,
    last: Mutex<Option<(Instant, Done<Vec<Sample>>)>>,
}

impl RealGpu {
    pub fn new(ambient: Ambient, roots: Roots, programs: Programs, state_dir: &Path) -> Self {
        let log = Mutex::new(kernel_log::Reader::new(&roots, state_dir));
        Self { roots, programs, ambient, log, log_fails: AtomicBool::new(false), last: Mutex::new(None) }
    }

    /// The GPUs that the host itself should be able to talk to.
    pub fn attached(&self) -> Vec<Gpu> {
        let gpus = RealDevices::new(self.roots.clone()).gpus().into_iter();
        gpus.filter(|gpu| gpu.driver.as_deref() != Some("vfio-pci")).take(GPUS_AT_MOST).collect()
    }

    fn samples(&self) -> Done<Vec<Sample>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, samples)) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return samples.clone();
        }
        let samples = self.samples_read();
        *last = Some((Instant::now(), samples.clone()));
        samples
    }

    fn samples_read(&self) -> Done<Vec<Sample>> {
        let attached = self.attached();
        let has = |vendor| attached.iter().any(|gpu| gpu.vendor == vendor);
        let tool = |path: &Option<PathBuf>| path.as_ref().filter(|path| path.exists()).cloned();
        let mut samples = Vec::new();
        if let (true, Some(tool)) = (has(GpuVendor::Nvidia), tool(&self.programs.nvidia_smi)) {
            samples.extend(nvidia::samples_read(&tool)?);
        }
        if let (true, Some(tool)) = (has(GpuVendor::Amd), tool(&self.programs.rocm_smi)) {
            samples.extend(amd::samples_read(&tool, &self.roots.sysfs)?);
        }
        if samples.len() > GPUS_AT_MOST {
            return Err(DriverError::failed("the vendor's tool lists more GPUs than a machine can have"));
        }
        samples.sort_by(|a, b| a.reading.pci_address.cmp(&b.reading.pci_address));
        Ok(samples)
    }

    /// Whether programs run on the GPUs, as the vendor's tool sees it; `None` when it cannot say.
    pub fn busy(&self) -> Option<Done<Vec<u32>>> {
        let nvidia = self.attached().iter().any(|gpu| gpu.vendor == GpuVendor::Nvidia);
        let tool = self.programs.nvidia_smi.as_ref().filter(|path| nvidia && path.exists())?;
        Some(nvidia::processes(tool))
    }

    pub fn metrics(&self) -> Vec<GpuMetrics> {
        let metrics = |sample: Sample| GpuMetrics {
            pci_address: sample.reading.pci_address,
            utilization_percent: sample.reading.utilization_percent.unwrap_or(0),
            memory_used_mib: sample.memory_used_mib,
            temperature_celsius: sample.reading.temperature_celsius.unwrap_or(0),
        };
        self.samples().unwrap_or_default().into_iter().map(metrics).collect()
    }

    fn finding(&self, code: &str, subject: &str, message: String, evidence: serde_json::Value) -> Finding {
        let (code, subject) = (code.to_owned(), subject.to_owned());
        Finding { code, subject, message, observed_at: self.ambient.now(), evidence }
    }

    /// What the readings show now; told as long as it lasts.
    fn conditions(&self) -> Vec<Finding> {
        let attached = self.attached();
        let samples = match self.samples() {
            Ok(samples) => samples,
            Err(error) => return vec![self.finding("gpu.driver", "node", error.message, json!({}))],
        };
        let mut findings = Vec::new();
        for sample in &samples {
            let reading = &sample.reading;
            let limit =
                if sample.vendor == GpuVendor::Amd { AMD_LIMIT_CELSIUS } else { NVIDIA_LIMIT_CELSIUS };
            if let Some(celsius) = reading.temperature_celsius.filter(|celsius| *celsius >= limit) {
                let message = format!("{celsius} °C, the limit is {limit} °C.");
                let evidence = json!({ "temperature_celsius": celsius, "limit_celsius": limit });
                findings.push(self.finding("dcgm.thermal", &reading.pci_address, message, evidence));
            }
            if let Some(errors) = reading.ecc_uncorrected.filter(|errors| *errors > 0) {
                let message = format!("{errors} uncorrected memory errors since the driver was loaded.");
                let evidence = json!({ "ecc_uncorrected": errors });
                findings.push(self.finding("dcgm.memory", &reading.pci_address, message, evidence));
            }
        }
        // Without any answer there is no tool, which is for the validation to judge.
        for gpu in attached.iter().filter(|_| !samples.is_empty()) {
            if !samples.iter().any(|sample| sample.reading.pci_address == gpu.pci_address) {
                let message = "The GPU is on the bus, but its driver does not list it.".to_owned();
                let evidence = json!({ "driver": gpu.driver });
                findings.push(self.finding("gpu.missing", &gpu.pci_address, message, evidence));
            }
        }
        findings
    }
}

impl GpuDriver for RealGpu {
    fn readings(&self) -> Done<Vec<GpuReading>> {
        Ok(self.samples()?.into_iter().map(|sample| sample.reading).collect())
    }

    fn findings(&self) -> Done<Vec<Finding>> {
        let mut findings = self.conditions();
        findings.truncate(FINDINGS_PER_HEARTBEAT / 2);
        let room = FINDINGS_PER_HEARTBEAT.saturating_sub(findings.len());
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        // What the readings show counts also where nobody can read the log.
        match log.findings(self.ambient.now(), room) {
            Ok(found) => {
                self.log_fails.store(false, Ordering::Relaxed);
                findings.extend(found);
            }
            Err(error) if !self.log_fails.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "errors of GPUs in the kernel log are not seen");
            }
            Err(_) => {}
        }
        Ok(findings)
    }
}

impl GpuDriver for Arc<RealGpu> {
    fn readings(&self) -> Done<Vec<GpuReading>> {
        self.as_ref().readings()
    }

    fn findings(&self) -> Done<Vec<Finding>> {
        self.as_ref().findings()
    }
}

/// `00000000:1B:00.0`, `0000:1b:00` and the like as `0000:1b:00.0`.
fn pci_address(text: &str) -> Option<String> {
    let mut parts = text.trim().split(':');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
    let number = |text: &str, digits: usize, most: u32| {
        let good = !text.is_empty() && text.len() <= digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| u32::from_str_radix(text, 16).ok()).flatten().filter(|number| *number <= most)
    };
    let (domain, bus) = (number(domain, 8, 0xffff)?, number(bus, 2, 0xff)?);
    let (device, function) = (number(device, 2, 0x1f)?, number(function, 1, 7)?);
    parts.next().is_none().then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_in_several_forms_and_leave_in_one() {
        for text in ["00000000:1B:00.0", "0000:1b:00", " 0000:1B:00.0 "] {
            assert_eq!(pci_address(text).as_deref(), Some("0000:1b:00.0"));
        }
        for odd in
            ["", "1b:00.0", "0000:1b:00.9", "0000:1b:20.0", "0000:1b:00.0:1", "g000:1b:00.0", "10000:00:00.0"]
        {
            assert_eq!(pci_address(odd), None, "{odd}");
        }
    }
}
