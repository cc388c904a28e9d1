//! What an operator may want to see of a node: bounded, and redacted before it leaves.

use std::time::Duration;

use node_proto::catalog::{COLLECTED_PART_BYTES, CollectPart, CollectedPart, Collection};

use super::RealDiag;
use crate::{drivers::files::read_bounded, drivers::gpu::kernel_log, exec::Run, redact::redact};

/// What is read before it is redacted and cut: redacting makes things longer or shorter.
const RAW_BYTES: usize = 4 * COLLECTED_PART_BYTES;
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);
const PROCESSES_AT_MOST: usize = 4096;
const LOG_LINES: &str = "1000";
const UNIT: &str = "gpuaas-agent.service";

pub(super) struct Raw {
    part: CollectPart,
    text: String,
    truncated: bool,
    /// The end of a log is worth more than its beginning.
    keep_end: bool,
}

impl RealDiag {
    pub(super) fn gather(&self, parts: &[CollectPart]) -> Vec<Raw> {
        let mut parts = parts.to_vec();
        parts.sort_unstable();
        parts.dedup();
        parts.into_iter().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: CollectPart) -> Raw {
        let keep_end = matches!(part, CollectPart::AgentLog | CollectPart::KernelLog);
        let taken = match part {
            CollectPart::AgentLog => self.agent_log(),
            CollectPart::KernelLog => kernel_log::read_log(&self.roots.dev.join("kmsg"))
                .map(|bytes| (kernel_log::readable(&bytes), false))
                .map_err(|error| error.to_string()),
            CollectPart::Mounts => self.file("self/mountinfo"),
            CollectPart::Memory => self.file("meminfo"),
            CollectPart::GpuDriver => self.gpu_driver(),
            CollectPart::Processes => Ok(self.processes()),
        };
        let (text, truncated) = taken.unwrap_or_else(|why| (format!("not available: {why}"), false));
        Raw { part, text, truncated, keep_end }
    }

    fn file(&self, file: &str) -> Result<(String, bool), String> {
        let (bytes, more) =
            read_bounded(&self.roots.proc.join(file), RAW_BYTES).map_err(|error| error.to_string())?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), more))
    }

    fn agent_log(&self) -> Result<(String, bool), String> {
        let journalctl = self.programs.journalctl.as_ref().ok_or("no journalctl is configured")?;
        let ran = Run::new(journalctl)
            .args(["--unit", UNIT, "--lines", LOG_LINES, "--no-pager", "--quiet", "--output", "short-iso"])
            .timeout(TOOL_TIMEOUT)
            .output_bytes(RAW_BYTES)
            .succeed()
            .map_err(|error| error.to_string())?;
        Ok((ran.text(), ran.truncated))
    }

    fn gpu_driver(&self) -> Result<(String, bool), String> {
        let mut text = String::new();
        for file in ["driver/nvidia/version", "driver/nvidia/params"] {
            if let Ok((found, _)) = self.file(file) {
                text += &format!("== {file}\n{found}\n");
            }
        }
        let mut truncated = false;
        let tools =
            [(&self.programs.nvidia_smi, vec!["-q"]), (&self.programs.rocm_smi, vec!["--showallinfo"])];
        for (tool, args) in tools {
            let Some(tool) = tool.as_ref().filter(|path| path.exists()) else { continue };
            match Run::new(tool).args(args).timeout(TOOL_TIMEOUT).output_bytes(RAW_BYTES).succeed() {
                Ok(ran) => {
                    text += &format!("== {}\n{}\n", tool.display(), ran.text());
                    truncated |= ran.truncated;
                }
                Err(error) => text += &format!("== {}\n{error}\n", tool.display()),
            }
        }
        if text.is_empty() {
            Err("no driver and no tool of a GPU vendor is installed".to_owned())
        } else {
            Ok((text, truncated))
        }
    }

    /// Names only: what programs were started with is their users' business.
    fn processes(&self) -> (String, bool) {
        let entries = std::fs::read_dir(&self.roots.proc).into_iter().flatten().flatten();
        let mut pids: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let mut text = "pid uid state memory_kib name\n".to_owned();
        for pid in pids.iter().take(PROCESSES_AT_MOST) {
            let Some(status) = self.proc_text(&format!("{pid}/status")) else { continue };
            let field = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                value.split_whitespace().next().unwrap_or("-").to_owned()
            };
            text += &format!(
                "{pid} {} {} {} {}\n",
                field("Uid:"),
                field("State:"),
                field("VmRSS:"),
                field("Name:")
            );
        }
        (text, pids.len() > PROCESSES_AT_MOST)
    }
}

pub(super) fn redacted(raw: Vec<Raw>) -> Collection {
    Collection { parts: raw.into_iter().map(finish).collect() }
}

fn finish(raw: Raw) -> CollectedPart {
    // Redacted before it is cut: a cut could hide what tells a secret.
    let text = redact(&raw.text);
    let (text, cut) = cut(text, raw.keep_end);
    CollectedPart { part: raw.part, text, truncated: raw.truncated || cut }
}

fn cut(mut text: String, keep_end: bool) -> (String, bool) {
    if text.len() <= COLLECTED_PART_BYTES {
        return (text, false);
    }
    if keep_end {
        let mut at = text.len() - COLLECTED_PART_BYTES;
        while !text.is_char_boundary(at) {
            at += 1;
        }
        return (text.split_off(at), true);
    }
    let mut at = COLLECTED_PART_BYTES;
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
    (text, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_part_is_longer_than_its_bound(text in "[a-zé°\n]{0,40}", times in 1_usize..9000, keep_end: bool) {
            let long = text.repeat(times);
            let (kept, was_cut) = cut(long.clone(), keep_end);
            prop_assert!(kept.len() <= COLLECTED_PART_BYTES);
            prop_assert_eq!(was_cut, long.len() > COLLECTED_PART_BYTES);
            let kept_part = if keep_end { long.ends_with(&kept) } else { long.starts_with(&kept) };
            prop_assert!(kept_part);
        }
    }
}
