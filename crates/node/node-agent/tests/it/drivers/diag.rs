//! Checks, collections, metrics and power on made-up machines.

use std::sync::Arc;

use node_agent::{
    config::Programs,
    drivers::{DiagDriver as _, PowerDriver as _, diag::RealDiag, gpu::RealGpu, power::RealPower},
};
use node_proto::catalog::{
    COLLECTED_PART_BYTES, CollectInput, CollectPart, HealthProbeInput, HealthReport, ProbeProfile,
};

use super::{
    Noted,
    gpu::{HEALTHY, ambient, nowhere, nvidia, two_h200},
    tree::{Tree, Written},
};

fn diag(written: &Written, programs: Programs) -> RealDiag {
    let state = written.path("state");
    let gpu = Arc::new(RealGpu::new(ambient(), written.roots(), programs.clone(), &state));
    RealDiag::new(ambient(), written.roots(), programs, state, gpu)
}

fn machine() -> Tree {
    let mut tree = two_h200("nvidia");
    // Booted 1000 s before the time that the tests' clock shows.
    tree.file("proc/stat", "cpu 1 2 3\nbtime 1772365400\n");
    tree
}

fn probe(tree: &Tree, script: &str, expected_gpus: u32, profile: ProbeProfile) -> HealthReport {
    let written = tree.write();
    let diag = diag(&written, nvidia(&written, script));
    diag.probe(&HealthProbeInput { profile, expected_gpus }, &Noted::default()).unwrap()
}

fn failed(report: &HealthReport) -> Vec<&str> {
    report.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect()
}

fn tool(rest: &str) -> String {
    format!("case \"$1\" in --query-compute-apps=*) {rest};; *) {};; esac", HEALTHY.replace('\n', ";"))
}

#[test]
fn a_healthy_machine_passes_every_profile() {
    for profile in [ProbeProfile::Onboarding, ProbeProfile::BetweenTenants, ProbeProfile::Light] {
        let report = probe(&machine(), &tool("true"), 2, profile);
        assert!(report.passed, "{report:?}");
        assert_eq!(report.gpus.len(), 2);
        assert_eq!(
            report.checks.iter().any(|check| check.name == "gpu_idle"),
            profile != ProbeProfile::Light
        );
    }
}

#[test]
fn each_thing_that_is_wrong_fails_its_own_check() {
    let light = ProbeProfile::Light;
    assert_eq!(failed(&probe(&machine(), &tool("true"), 8, light)), ["gpu_count"]);
    assert_eq!(failed(&probe(&machine(), "exit 9", 2, light)), ["gpu_driver"]);
    assert_eq!(failed(&probe(&machine(), "true", 2, light)), ["gpu_driver"]);
    assert_eq!(failed(&probe(&machine(), &tool("echo 4711"), 2, ProbeProfile::BetweenTenants)), ["gpu_idle"]);
    let sick = HEALTHY.replace("34, 5, 0", "95, 5, 2");
    assert_eq!(failed(&probe(&machine(), &sick, 2, light)), ["gpu_ecc", "gpu_temperature"]);

    let mut tree = machine();
    tree.file("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 300000 kB\n");
    assert_eq!(failed(&probe(&tree, &tool("true"), 2, ProbeProfile::BetweenTenants)), ["memory"]);
    assert!(failed(&probe(&tree, &tool("true"), 2, light)).is_empty());
    let mut tree = machine();
    tree.file("proc/stat", "btime 1772000000\n");
    assert_eq!(failed(&probe(&tree, &tool("true"), 2, light)), ["clock"]);
    let mut tree = machine();
    tree.file("proc/sys/kernel/tainted", "16\n");
    assert_eq!(failed(&probe(&tree, &tool("true"), 2, light)), ["kernel"]);
}

#[test]
fn nothing_to_read_fails_checks_and_nothing_else() {
    let mut tree = Tree::default();
    tree.dir("empty");
    let report = probe(&tree, "true", 0, ProbeProfile::Onboarding);
    assert_eq!(failed(&report), ["disk_space", "memory", "clock", "kernel"]);
}

#[test]
fn metrics_are_what_the_kernel_says() {
    let written = machine().write();
    let metrics = diag(&written, nvidia(&written, HEALTHY)).metrics();
    assert_eq!((metrics.load_1m, metrics.memory_used_mib), (1.25, 262_144));
    assert_eq!((metrics.gpus.len(), metrics.gpus[0].temperature_celsius), (2, 34));
    assert!(metrics.state_disk_free_mib > 0);
}

#[test]
fn a_disk_that_is_nearly_full_is_a_finding_as_long_as_it_lasts() {
    let written = machine().write();
    assert_eq!(diag(&written, nowhere()).findings(), []);
    // A file system on which nothing is ever free.
    let state = std::path::PathBuf::from("/proc");
    let gpu = Arc::new(RealGpu::new(ambient(), written.roots(), nowhere(), &written.path("state")));
    let full = RealDiag::new(ambient(), written.roots(), nowhere(), state, gpu);
    for _ in 0..2 {
        let findings = full.findings();
        assert_eq!((findings[0].code.as_str(), findings[0].subject.as_str()), ("node.disk_full", "node"));
        assert_eq!(findings[0].evidence["free_mib"], 0);
    }
}

#[test]
fn what_is_collected_is_bounded_and_redacted() {
    let mut tree = machine();
    let mounts = "30 1 0:40 / /mnt rw - cifs //server/share rw,username=u,password=hunter2\n".repeat(2000);
    tree.file("proc/self/mountinfo", mounts);
    tree.file("dev/kmsg", format!("6,1,1,-;first\n6,2,2,-;{}\n6,3,3,-;the last line\n", "x".repeat(100_000)));
    tree.file("proc/77/status", "Name:\tpython3\nState:\tS\nUid:\t20001\t1\t1\t1\nVmRSS:\t 900 kB\n");
    tree.file("proc/77/cmdline", "python3\0--token\0hunter2\0");
    let written = tree.write();
    let mut programs = nvidia(&written, "echo serial; echo api_key: hunter2");
    programs.journalctl =
        Some(written.script("journalctl", "echo \"$@\"; echo Authorization: Bearer hunter2"));
    let every = vec![
        CollectPart::Processes,
        CollectPart::AgentLog,
        CollectPart::KernelLog,
        CollectPart::Mounts,
        CollectPart::Memory,
        CollectPart::GpuDriver,
        CollectPart::Mounts,
    ];
    let steps = Noted::default();
    let collection = diag(&written, programs).collect(&CollectInput { parts: every }, &steps).unwrap();
    assert_eq!(*steps.seen.lock().unwrap(), ["collect", "redact"]);
    assert_eq!(collection.parts.len(), 6);
    let part = |wanted: CollectPart| collection.parts.iter().find(|part| part.part == wanted).unwrap();
    for part in &collection.parts {
        assert!(part.text.len() <= COLLECTED_PART_BYTES && !part.text.contains("hunter2"), "{:?}", part.part);
    }
    assert!(
        part(CollectPart::Mounts).truncated && part(CollectPart::Mounts).text.contains("password=[redacted]")
    );
    assert!(
        part(CollectPart::KernelLog).truncated
            && part(CollectPart::KernelLog).text.ends_with("the last line\n")
    );
    assert!(part(CollectPart::Processes).text.contains("77 20001 S 900 python3"));
    assert!(part(CollectPart::AgentLog).text.contains("--unit gpuaas-agent.service"));
    assert!(part(CollectPart::GpuDriver).text.contains("serial"));
}

#[test]
fn what_cannot_be_collected_says_why() {
    let mut tree = Tree::default();
    tree.dir("proc");
    let written = tree.write();
    let input =
        CollectInput { parts: vec![CollectPart::AgentLog, CollectPart::KernelLog, CollectPart::GpuDriver] };
    let collection = diag(&written, nowhere()).collect(&input, &Noted::default()).unwrap();
    assert!(collection.parts.iter().all(|part| part.text.starts_with("not available: ")));
}

#[test]
fn a_reboot_is_asked_of_the_service_manager_in_plain_words() {
    let written = machine().write();
    let said = written.path("said");
    let systemctl = written.script("systemctl", &format!("printf '%s\\n' \"$@\" >{}", said.display()));
    let power = RealPower::new(written.roots(), Programs { systemctl: Some(systemctl), ..nowhere() });
    assert_eq!(power.boot_id(), "6f3c0f4e-8a4c-4d0e-9f0a-000000000001");
    power.reboot("firmware\n$(id)").unwrap();
    let said = std::fs::read_to_string(said).unwrap();
    assert_eq!(said, "--no-block\n--no-wall\n--message=gpuaas: firmware$(id)\nreboot\n");
    assert!(RealPower::new(written.roots(), nowhere()).reboot("x").is_err());
}
