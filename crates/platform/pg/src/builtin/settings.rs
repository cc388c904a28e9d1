//! The server's settings, worked out from the machine at each start and given on the command line, where they
//! win over anything in the cluster's own files.

use std::path::Path;

use super::{BuiltinConfig, PORT};

const MIB: u64 = 1024 * 1024;
/// Used when the machine does not say.
const ASSUMED_MEMORY_BYTES: u64 = 1024 * MIB;

/// The arguments of `postgres`.
pub(super) fn arguments(
    config: &BuiltinConfig,
    pgdata: &Path,
    socket_dir: &Path,
    memory_bytes: u64,
) -> Vec<String> {
    let memory_mb = memory_bytes / MIB;
    let megabytes = |share: u64, low: u64, high: u64| format!("{}MB", (memory_mb / share).clamp(low, high));
    let mut settings: Vec<(&str, String)> = vec![
        // Reachable through the socket only.
        ("listen_addresses", String::new()),
        ("port", PORT.to_string()),
        ("unix_socket_directories", quote_list_item(&socket_dir.display().to_string())),
        ("unix_socket_permissions", "0700".into()),
        ("max_connections", config.max_connections.max(10).to_string()),
        // Memory: modest, because the rest of the product runs beside it and the page cache does much.
        ("shared_buffers", if config.durable { megabytes(8, 32, 512) } else { "32MB".into() }),
        ("effective_cache_size", megabytes(2, 128, 65_536)),
        ("maintenance_work_mem", megabytes(32, 32, 256)),
        ("work_mem", "8MB".into()),
        // Short transactions on indexes: no compiled plans, no parallel workers (which need room in /dev/shm).
        ("jit", "off".into()),
        ("max_parallel_workers_per_gather", "0".into()),
        ("random_page_cost", "1.1".into()),
        // Write-ahead log: seldom checkpoints, bounded size.
        ("checkpoint_timeout", "10min".into()),
        ("max_wal_size", "1GB".into()),
        ("min_wal_size", "80MB".into()),
        ("wal_compression", "on".into()),
        // Also without durability: what was committed survives kill -9 of the server, and costs little then.
        ("synchronous_commit", "on".into()),
        ("timezone", "UTC".into()),
        // Log to our pipe. Statements, parameters and row values stay out of it: they are tenants' data.
        ("logging_collector", "off".into()),
        ("log_destination", "stderr".into()),
        ("log_timezone", "UTC".into()),
        ("log_line_prefix", "[%p] ".into()),
        ("log_error_verbosity", "terse".into()),
        ("log_min_error_statement", "panic".into()),
        ("log_statement", "none".into()),
    ];
    let durability = if config.durable { "on" } else { "off" };
    for name in ["fsync", "full_page_writes"] {
        settings.push((name, durability.into()));
    }
    let mut arguments = vec!["-D".to_owned(), pgdata.display().to_string()];
    for (name, value) in settings {
        arguments.push("-c".to_owned());
        arguments.push(format!("{name}={value}"));
    }
    arguments
}

/// One item of a list setting: quoted, so that commas and spaces in a path are part of it.
fn quote_list_item(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The memory we may use: the machine's, or the container's limit when that is lower.
pub(super) fn machine_memory_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
    let container =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min().unwrap_or(ASSUMED_MEMORY_BYTES)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_for(memory_bytes: u64, durable: bool) -> Vec<String> {
        let config = BuiltinConfig {
            data_dir: "/d".into(),
            bin_dir: None,
            run_as: None,
            durable,
            start_timeout: std::time::Duration::from_secs(1),
            max_connections: 50,
        };
        arguments(&config, Path::new("/d/pgdata"), Path::new("/d/a, b"), memory_bytes)
    }

    #[test]
    fn shared_buffers_follow_memory_between_fixed_bounds() {
        let has = |memory, value: &str| settings_for(memory, true).iter().any(|argument| argument == value);
        assert!(has(64 * MIB, "shared_buffers=32MB"));
        assert!(has(2048 * MIB, "shared_buffers=256MB"));
        assert!(has(1024 * 1024 * MIB, "shared_buffers=512MB"));
    }

    #[test]
    fn durability_is_given_up_only_when_asked() {
        for name in ["fsync", "full_page_writes"] {
            assert!(settings_for(MIB, true).contains(&format!("{name}=on")));
            assert!(settings_for(MIB, false).contains(&format!("{name}=off")));
        }
        assert!(settings_for(MIB, false).contains(&"synchronous_commit=on".to_owned()));
    }

    #[test]
    fn socket_directory_with_a_comma_stays_one_directory() {
        assert!(settings_for(MIB, true).contains(&"unix_socket_directories=\"/d/a, b\"".to_owned()));
        assert_eq!(quote_list_item("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(meminfo_total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048 * 1024));
        assert_eq!(meminfo_total("nothing"), None);
    }
}
