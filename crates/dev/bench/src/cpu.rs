//! CPU time and memory of processes, from /proc.

use std::fs;

/// Clock ticks are 1/100 s on every Linux we run on.
const MICROS_PER_TICK: u64 = 10_000;

/// (utime+stime, cutime+cstime) in microseconds.
fn times(pid: u32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold anything; fields count from after it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let tick = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
    Some(((tick(11)? + tick(12)?) * MICROS_PER_TICK, (tick(13)? + tick(14)?) * MICROS_PER_TICK))
}

pub fn process_micros(pid: u32) -> u64 {
    times(pid).map_or(0, |t| t.0)
}

/// A server with all its children, the finished ones included.
pub fn family_micros(pid: u32) -> u64 {
    // Nobody; as a parent it would be everybody.
    if pid == 0 {
        return 0;
    }
    let own = times(pid).map_or(0, |t| t.0 + t.1);
    own + children(pid).into_iter().map(process_micros).sum::<u64>()
}

/// Time that this process's finished children took: the clients it ran.
pub fn finished_children_micros() -> u64 {
    times(std::process::id()).map_or(0, |t| t.1)
}

pub fn children(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| parent(*child) == Some(pid)).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
