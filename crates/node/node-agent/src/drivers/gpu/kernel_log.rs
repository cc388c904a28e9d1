//! Errors of GPUs in the kernel log. Each line of the log has a number; where we stopped reading is kept in the
//! state directory together with the boot that it belongs to, so that an event is told once, also across a
//! restart of the agent.

use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta, Utc};
use node_proto::contract::Finding;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::pci_address;
use crate::{
    atomic,
    config::Roots,
    drivers::{Done, DriverError, files::read_bounded},
    redact::redact,
};

const LOG_BYTES: usize = 16 * 1024 * 1024;
const MESSAGE_CHARS: usize = 300;
/// Below these bits of a line's priority is its level, above who said it.
const FACILITY_SHIFT: u32 = 3;
const SEVERITY_MASK: u32 = (1 << FACILITY_SHIFT) - 1;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    boot_id: String,
    /// The number of the last line that was looked at.
    line: Option<u64>,
}

pub struct Reader {
    log: PathBuf,
    proc: PathBuf,
    state: PathBuf,
    position: Position,
}

/// One line of the log.
pub(crate) struct Line<'a> {
    /// The kernel itself said it. What programs write into the log is marked as theirs, whoever they are.
    pub by_kernel: bool,
    /// From 0, an emergency, to 7, for debugging.
    pub severity: u32,
    pub number: u64,
    pub since_boot_micros: i64,
    pub text: &'a str,
}

impl Reader {
    pub fn new(roots: &Roots, state_dir: &Path) -> Self {
        let state = state_dir.join("kernel-log.json");
        let kept = read_bounded(&state, 4096).ok().and_then(|(bytes, _)| serde_json::from_slice(&bytes).ok());
        Self {
            log: roots.dev.join("kmsg"),
            proc: roots.proc.clone(),
            state,
            position: kept.unwrap_or_default(),
        }
    }

    /// What is new since the last time, at most so many; the rest comes the next time.
    pub fn findings(&mut self, now: DateTime<Utc>, most: usize) -> Done<Vec<Finding>> {
        let boot_id = boot_id_read(&self.proc).unwrap_or_default();
        if self.position.boot_id != boot_id {
            self.position = Position { boot_id, line: None };
        }
        let bytes = match read_log(&self.log) {
            Ok(bytes) => bytes,
            // A container or a made-up tree has none.
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => {
                return Err(DriverError::failed(format!(
                    "the kernel log {} cannot be read: {error}",
                    self.log.display()
                )));
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let uptime = uptime_read(&self.proc);
        let before = self.position.clone();
        let mut findings = Vec::new();
        for line in text.lines().filter_map(parse_line) {
            if self.position.line.is_some_and(|last| line.number <= last) {
                continue;
            }
            if findings.len() == most {
                break;
            }
            self.position.line = Some(line.number);
            findings.extend(finding(&line, now, uptime));
        }
        if self.position != before {
            let kept = serde_json::to_vec(&self.position).unwrap_or_default();
            atomic::write(&self.state, &kept).map_err(|error| {
                DriverError::failed(format!("{} cannot be written: {error}", self.state.display()))
            })?;
        }
        Ok(findings)
    }
}

/// Which boot of the machine this is: numbers of lines begin anew with each.
pub(crate) fn boot_id_read(proc: &Path) -> Option<String> {
    small(&proc.join("sys/kernel/random/boot_id"))
}

fn small(path: &Path) -> Option<String> {
    let (bytes, _) = read_bounded(path, 256).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The device gives one line with each read, and says that it would wait when there are no more. It can only be
/// read from its beginning.
pub fn read_log(path: &Path) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let log = rustix::fs::open(path, flags, Mode::empty())?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    while bytes.len() < LOG_BYTES {
        match rustix::io::read(&log, buffer.as_mut_slice()) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(read) => bytes.extend(buffer.iter().take(read)),
            // Lines were overwritten while we read, or a signal came.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// `6,1234,567890,-;text`
pub(crate) fn parse_line(text: &str) -> Option<Line<'_>> {
    let (head, text) = text.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, number, micros) = (fields.next()?, fields.next()?, fields.next()?);
    let priority: u32 = priority.parse().ok()?;
    Some(Line {
        by_kernel: priority >> FACILITY_SHIFT == 0,
        severity: priority & SEVERITY_MASK,
        number: number.parse().ok()?,
        since_boot_micros: micros.parse().ok()?,
        text,
    })
}

/// The log without its numbers, for people.
pub fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|raw| match parse_line(raw) {
        Some(line) => format!("[{:>12.6}] {}\n", line.since_boot_micros as f64 / 1e6, line.text),
        None => format!("{raw}\n"),
    });
    lines.collect()
}

/// How long the machine has been up, in microseconds.
pub(crate) fn uptime_read(proc: &Path) -> Option<i64> {
    small(&proc.join("uptime")).and_then(|text| uptime_micros(&text))
}

fn uptime_micros(text: &str) -> Option<i64> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    seconds
        .parse::<i64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(hundredths.parse::<i64>().ok()?.checked_mul(10_000)?)
}

/// Findings can mean money back, so a user must not be able to make one: other lines of the kernel's carry words of
/// users too, such as names of programs and groups, but never at their beginning.
fn finding(line: &Line<'_>, now: DateTime<Utc>, uptime: Option<i64>) -> Option<Finding> {
    if !line.by_kernel {
        return None;
    }
    let (code, subject) = xid(line.text).or_else(|| amd_error(line.text))?;
    let message: String = redact(line.text).chars().take(MESSAGE_CHARS).collect();
    let age = uptime.map_or(0, |uptime| uptime.saturating_sub(line.since_boot_micros)).max(0);
    Some(Finding {
        code,
        subject,
        observed_at: now.checked_sub_signed(TimeDelta::microseconds(age)).unwrap_or(now),
        evidence: json!({ "kernel_log": message, "line": line.number }),
        message,
    })
}

/// `NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.`
fn xid(text: &str) -> Option<(String, String)> {
    let (address, rest) = text.strip_prefix("NVRM: Xid (PCI:")?.split_once("):")?;
    let number = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    let number: u32 = number.parse().ok()?;
    Some((format!("xid.{number}"), pci_address(address)?))
}

/// `amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block`
fn amd_error(text: &str) -> Option<(String, String)> {
    let (address, rest) = text.strip_prefix("amdgpu ")?.split_once(": ")?;
    let count = rest.split_once(" uncorrectable hardware errors detected")?.0.rsplit(' ').next()?;
    let found = count.parse::<u64>().is_ok_and(|count| count > 0);
    found.then_some(("amdgpu.ras".to_owned(), pci_address(address)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_are_recognised_with_their_number_and_device() {
        let seen = |text: &str| xid(text).or_else(|| amd_error(text));
        let pair = |code: &str, subject: &str| Some((code.to_owned(), subject.to_owned()));
        assert_eq!(
            seen("NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus."),
            pair("xid.79", "0000:1b:00.0")
        );
        assert_eq!(seen("NVRM: Xid (PCI:0000:DB:00): 119, Timeout"), pair("xid.119", "0000:db:00.0"));
        assert_eq!(
            seen("amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block"),
            pair("amdgpu.ras", "0000:c1:00.0")
        );
        for other in [
            "amdgpu 0000:c1:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
            "NVRM: Xid (PCI:somewhere): 79, x",
            "NVRM: Xid (PCI:0000:1b:00): many",
            "usb 1-1: new device",
            "oom-kill:task_memcg=/user.slice/NVRM: Xid (PCI:0000:1b:00): 79, pid=1, task=x",
            "x amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        ] {
            assert_eq!(seen(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_program_writes_into_the_log_is_no_finding() {
        let found = |raw: &str| finding(&parse_line(raw).unwrap(), DateTime::UNIX_EPOCH, None).is_some();
        let text = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.";
        assert!(found(&format!("4,1,1,-;{text}")));
        assert!(!found(&format!("12,1,1,-;{text}")));
    }

    proptest! {
        #[test]
        fn no_line_of_a_log_is_a_panic(text in "\\PC{0,120}", head in "[0-9,;]{0,20}") {
            let whole = format!("{head};NVRM: Xid (PCI:{text}");
            if let Some(line) = parse_line(&whole) {
                let _ = finding(&line, DateTime::UNIX_EPOCH, uptime_micros(&text));
            }
            let _ = readable(whole.as_bytes());
        }
    }
}
