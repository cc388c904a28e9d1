//! Figures about this process, read from `/proc/self` when asked. A figure that cannot be read is left out.

use std::{fmt::Write, fs};

use crate::{metric::Kind, names};

/// `/proc/self/stat` counts in ticks of USER_HZ, which Linux fixes at 100 for programs whatever the kernel's
/// own timer runs at.
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends the process metrics in Prometheus text form.
pub(crate) fn render(out: &mut String) {
    let figures = [
        (names::PROCESS_RESIDENT_MEMORY_BYTES, resident_bytes()),
        (names::PROCESS_CPU_SECONDS_TOTAL, cpu_seconds()),
        (names::PROCESS_OPEN_FDS, open_fds()),
    ];
    for (name, value) in figures {
        let (Some(value), Some(metric)) = (value, names::ALL.iter().find(|metric| metric.name == name))
        else {
            continue;
        };
        let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}\n{name} {value}\n", metric.help);
    }
}

fn resident_bytes() -> Option<f64> {
    resident_from(&fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_from(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn cpu_seconds() -> Option<f64> {
    cpu_from(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn cpu_from(stat: &str) -> Option<f64> {
    // The second field is the program's name in brackets and may itself hold blanks and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn open_fds() -> Option<f64> {
    // Listing opens one itself.
    let listed = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(listed.saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_and_open_files() {
        let mut out = String::new();
        render(&mut out);
        assert!(resident_bytes().unwrap() > 100_000.0);
        assert!(open_fds().unwrap() >= 3.0);
        assert!(out.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "));
        assert!(out.contains("process_open_fds "));
    }

    #[test]
    fn cpu_is_read_past_a_program_name_with_brackets_and_blanks() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 1 2";
        assert_eq!(cpu_from(stat), Some(3.0));
    }

    #[test]
    fn unexpected_text_gives_no_figure() {
        assert_eq!(cpu_from("7 (a"), None);
        assert_eq!(cpu_from("7 (a) S 1"), None);
        assert_eq!(resident_from("VmRSS: many kB"), None);
    }
}
