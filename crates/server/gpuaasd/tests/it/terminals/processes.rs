//! Processes of shells, as the machine that runs the simulated nodes sees them.

/// A process whose line of arguments or environment passes `is_one`.
fn find(file: &str, is_one: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let found = processes.filter(|entry| is_one(&std::fs::read(entry.path().join(file)).unwrap_or_default()));
    found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Processes `sleep` with this argument.
pub fn sleeping(marker: &str) -> Vec<i32> {
    find("cmdline", |line| {
        line.split(|byte| *byte == 0).any(|part| part == marker.as_bytes()) && line.starts_with(b"sleep\0")
    })
}

pub fn sleeping_count(marker: &str) -> usize {
    sleeping(marker).len()
}

/// How many processes a session has.
pub fn session_count(session: &str) -> usize {
    find("environ", |variables| variables.windows(session.len()).any(|window| window == session.as_bytes()))
        .len()
}
