//! The checks that must pass before a tenant gets the machine, and between two tenants.

use chrono::{DateTime, Utc};
use node_proto::catalog::{GpuReading, GpuVendor, HealthProbeInput, HealthReport, ProbeCheck, ProbeProfile};

use super::RealDiag;
use crate::drivers::{GpuDriver as _, devices::RealDevices};

const DISK_FREE_MIB: u64 = 1024;
const DISK_FREE_PERCENT: u64 = 5;
/// Enough on a disk of any size.
const DISK_PLENTY_MIB: u64 = 8 * 1024;
const MEMORY_FREE_PERCENT: u64 = 5;
const MEMORY_FREE_BETWEEN_PERCENT: u64 = 50;
const HOT_CELSIUS: i32 = 85;
/// No clock that is right shows an earlier time.
const EARLIEST: i64 = 1_735_689_600;
/// How far the wall clock may be from the time that the kernel derives from boot and uptime.
const CLOCK_SECONDS: i64 = 30;

fn check(name: &str, passed: bool, detail: impl Into<String>) -> ProbeCheck {
    ProbeCheck { name: name.to_owned(), passed, detail: detail.into() }
}

/// Of a disk's free and total space in MiB: whether the agent can go on for a good while.
pub(super) fn enough_space((free, total): (u64, u64)) -> bool {
    let share = free.saturating_mul(100) >= total.saturating_mul(DISK_FREE_PERCENT);
    free >= DISK_PLENTY_MIB || (free >= DISK_FREE_MIB && share)
}

impl RealDiag {
    pub(super) fn check_all(&self, input: &HealthProbeInput) -> HealthReport {
        let thorough = input.profile != ProbeProfile::Light;
        let on_bus = RealDevices::new(self.roots.clone()).gpus().len();
        let attached = self.gpu.attached();
        let (readings, failure) = match self.gpu.readings() {
            Ok(readings) => (readings, None),
            Err(error) => (Vec::new(), Some(error.message)),
        };
        let mut checks = vec![
            check(
                "gpu_count",
                u32::try_from(on_bus).is_ok_and(|found| found >= input.expected_gpus),
                format!("{on_bus} on the bus, at least {} expected", input.expected_gpus),
            ),
            match failure {
                Some(failure) => check("gpu_driver", false, failure),
                None => {
                    let answer =
                        |address: &str| readings.iter().any(|reading| reading.pci_address == address);
                    let silent =
                        attached.iter().filter(|gpu| !answer(&gpu.pci_address)).map(|gpu| &*gpu.pci_address);
                    let silent: Vec<_> = silent.collect();
                    let detail = format!("{} of {} answer", attached.len() - silent.len(), attached.len());
                    let detail = if silent.is_empty() {
                        detail
                    } else {
                        format!("{detail}; silent: {}", silent.join(", "))
                    };
                    check("gpu_driver", silent.is_empty(), detail)
                }
            },
            ecc(&readings),
            temperature(&readings),
        ];
        if thorough {
            checks.extend(self.idle(&attached));
        }
        let memory = if thorough { MEMORY_FREE_BETWEEN_PERCENT } else { MEMORY_FREE_PERCENT };
        checks.extend([self.disk(), self.memory(memory), self.clock(), self.kernel()]);
        let passed = checks.iter().all(|check| check.passed);
        HealthReport { profile: input.profile, passed, checks, gpus: readings }
    }

    /// Nothing of a former tenant may run on a GPU.
    fn idle(&self, attached: &[node_proto::catalog::Gpu]) -> Option<ProbeCheck> {
        if !attached.iter().any(|gpu| gpu.vendor == GpuVendor::Nvidia) {
            return None;
        }
        Some(match self.gpu.busy()? {
            Err(error) => check("gpu_idle", false, error.message),
            Ok(pids) if pids.is_empty() => check("gpu_idle", true, "no program uses a GPU"),
            Ok(pids) => {
                let some: Vec<_> = pids.iter().take(10).map(u32::to_string).collect();
                check("gpu_idle", false, format!("{} programs use a GPU: {}", pids.len(), some.join(", ")))
            }
        })
    }

    fn disk(&self) -> ProbeCheck {
        let Some((free, total)) = self.disk_mib() else {
            return check("disk_space", false, format!("{} cannot be looked at", self.state_dir.display()));
        };
        check("disk_space", enough_space((free, total)), format!("{free} of {total} MiB free"))
    }

    fn memory(&self, percent: u64) -> ProbeCheck {
        match self.memory_mib("MemTotal").zip(self.memory_mib("MemAvailable")) {
            Some((total, free)) => {
                let enough = total > 0 && free.saturating_mul(100) >= total.saturating_mul(percent);
                check(
                    "memory",
                    enough,
                    format!("{free} of {total} MiB available, at least {percent} % needed"),
                )
            }
            None => check("memory", false, "the kernel does not say how much memory there is"),
        }
    }

    fn clock(&self) -> ProbeCheck {
        let now: DateTime<Utc> = self.ambient.now();
        if now.timestamp() < EARLIEST {
            return check("clock", false, format!("it shows {now}; set it and keep it synchronised"));
        }
        let boot = self.proc_text("stat").and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<i64>().ok())
        });
        let uptime =
            self.proc_text("uptime").and_then(|text| text.split('.').next()?.trim().parse::<i64>().ok());
        let Some((boot, uptime)) = boot.zip(uptime) else {
            return check("clock", false, "the kernel does not say when it was booted");
        };
        let off = now.timestamp().saturating_sub(boot.saturating_add(uptime));
        check("clock", off.abs() <= CLOCK_SECONDS, format!("{off} s from the kernel's own"))
    }

    /// The kernel remembers machine checks and its own crashes until the next boot.
    fn kernel(&self) -> ProbeCheck {
        let release = self.proc_text("sys/kernel/osrelease").unwrap_or_default();
        let taint = self.proc_text("sys/kernel/tainted").and_then(|text| text.trim().parse::<u64>().ok());
        let bad = [(4, "a machine check"), (7, "a crash of a kernel part"), (5, "a damaged page")];
        match taint {
            Some(taint) => {
                let seen: Vec<_> =
                    bad.iter().filter(|(bit, _)| taint >> bit & 1 == 1).map(|(_, what)| *what).collect();
                let detail = if seen.is_empty() {
                    "no damage noted".to_owned()
                } else {
                    format!("noted since boot: {}; reboot and test", seen.join(", "))
                };
                check("kernel", seen.is_empty(), format!("{}: {detail}", release.trim()))
            }
            None => check("kernel", false, "the kernel does not say whether it is healthy"),
        }
    }
}

fn ecc(readings: &[GpuReading]) -> ProbeCheck {
    let bad = readings.iter().filter(|reading| reading.ecc_uncorrected.is_some_and(|errors| errors > 0));
    let bad: Vec<_> = bad.map(|reading| reading.pci_address.as_str()).collect();
    let detail = if bad.is_empty() {
        "no uncorrected errors".to_owned()
    } else {
        format!("uncorrected errors on {}", bad.join(", "))
    };
    check("gpu_ecc", bad.is_empty(), detail)
}

fn temperature(readings: &[GpuReading]) -> ProbeCheck {
    let hottest = readings.iter().filter_map(|reading| reading.temperature_celsius).max();
    let detail = hottest.map_or_else(|| "no reading".to_owned(), |celsius| format!("at most {celsius} °C"));
    check("gpu_temperature", hottest.is_none_or(|celsius| celsius < HOT_CELSIUS), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_judged_by_what_is_left_and_on_small_disks_by_its_share() {
        for (free, total, enough) in [
            (900, 1000, false),
            (1100, 20_000, true),
            (1100, 30_000, false),
            (9000, 10_000_000, true),
            (0, 0, false),
        ] {
            assert_eq!(enough_space((free, total)), enough, "{free} of {total}");
        }
    }
}
