//! GPUs through fake tools and a made-up kernel log.

use chrono::{TimeZone as _, Utc};
use kernel::{Ambient, ManualClock};
use node_agent::{
    config::Programs,
    drivers::{GpuDriver as _, gpu::RealGpu},
};
use node_proto::contract::Finding;

use super::tree::{Pci, Tree, Written};

pub fn nowhere() -> Programs {
    Programs {
        loginctl: None,
        systemctl: None,
        crontab: None,
        visudo: None,
        dmesg: None,
        ipcrm: None,
        journalctl: None,
        nvidia_smi: None,
        rocm_smi: None,
        ..Programs::default()
    }
}

struct Fixed;

impl kernel::Entropy for Fixed {
    fn fill(&self, out: &mut [u8]) {
        out.fill(7);
    }
}

pub fn ambient() -> Ambient {
    let clock = ManualClock::starting_at(Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap());
    Ambient::new(clock, std::sync::Arc::new(Fixed))
}

pub fn two_h200(driver: &str) -> Tree {
    let mut tree = Tree::machine(2);
    for (address, numa) in [("0000:1b:00.0", 0), ("0000:db:00.0", 1)] {
        let id = ("10de", "2335", "030200");
        tree.pci(&Pci {
            address,
            parent: "pci0000:10/0000:10:01.0",
            id,
            numa,
            group: Some(1),
            driver: Some(driver),
        });
    }
    tree.dir("state");
    tree
}

pub const HEALTHY: &str = "echo '00000000:1B:00.0, NVIDIA H200, 550.54.15, 143771, 12, 34, 5, 0'\n\
                           echo '00000000:DB:00.0, NVIDIA H200, 550.54.15, 143771, 0, 36, [N/A], 0'";

pub fn nvidia(written: &Written, script: &str) -> Programs {
    Programs { nvidia_smi: Some(written.script("nvidia-smi", script)), ..nowhere() }
}

fn gpu(written: &Written, programs: Programs) -> RealGpu {
    RealGpu::new(ambient(), written.roots(), programs, &written.path("state"))
}

fn codes(findings: &[Finding]) -> Vec<(&str, &str)> {
    findings.iter().map(|finding| (finding.code.as_str(), finding.subject.as_str())).collect()
}

#[test]
fn readings_come_from_the_tool_and_healthy_gpus_give_no_findings() {
    let written = two_h200("nvidia").write();
    let script = format!("test \"$2\" = --format=csv,noheader,nounits || exit 9\n{HEALTHY}");
    let gpu = gpu(&written, nvidia(&written, &script));
    let readings = gpu.readings().unwrap();
    assert_eq!(readings.len(), 2);
    assert_eq!(
        (readings[0].pci_address.as_str(), readings[0].temperature_celsius),
        ("0000:1b:00.0", Some(34))
    );
    assert_eq!(readings[1].utilization_percent, None);
    assert_eq!(gpu.findings().unwrap(), []);
    assert_eq!(gpu.metrics()[0].memory_used_mib, 12);
}

#[test]
fn heat_memory_errors_and_silence_are_findings_as_long_as_they_last() {
    let written = two_h200("nvidia").write();
    let hot = gpu(
        &written,
        nvidia(&written, "echo '00000000:1B:00.0, NVIDIA H200, 550.54.15, 143771, 12, 91, 5, 3'"),
    );
    for _ in 0..2 {
        let findings = hot.findings().unwrap();
        assert_eq!(
            codes(&findings),
            [
                ("dcgm.thermal", "0000:1b:00.0"),
                ("dcgm.memory", "0000:1b:00.0"),
                ("gpu.missing", "0000:db:00.0")
            ]
        );
        assert_eq!(findings[0].evidence["temperature_celsius"], 91);
    }
    let broken =
        gpu(&written, nvidia(&written, "echo 'could not talk to the driver, token=abcdefgh' >&2; exit 9"));
    let findings = broken.findings().unwrap();
    assert_eq!(codes(&findings), [("gpu.driver", "node")]);
    assert!(findings[0].message.contains("could not talk") && !findings[0].message.contains("abcdefgh"));
    assert!(broken.readings().is_err());
    let babble = gpu(&written, nvidia(&written, "yes | head -c 1000000"));
    assert!(babble.readings().unwrap_err().message.contains("more than is believable"));
}

#[test]
fn what_the_readings_show_is_told_also_where_the_kernel_log_cannot_be_read() {
    let mut tree = two_h200("nvidia");
    tree.dir("dev/kmsg");
    let written = tree.write();
    let hot = gpu(&written, nvidia(&written, &HEALTHY.replace("34, 5, 0", "91, 5, 0")));
    assert_eq!(codes(&hot.findings().unwrap()), [("dcgm.thermal", "0000:1b:00.0")]);
}

#[test]
fn gpus_that_are_handed_to_virtual_machines_are_not_asked() {
    let written = two_h200("vfio-pci").write();
    let gpu = gpu(&written, nvidia(&written, "exit 9"));
    assert_eq!(gpu.readings().unwrap(), []);
    assert_eq!(gpu.findings().unwrap(), []);
}

#[test]
fn amd_cards_are_read_with_their_error_counters() {
    let mut tree = Tree::machine(1);
    let id = ("1002", "74a1", "120000");
    let dir = tree.pci(&Pci {
        address: "0000:c1:00.0",
        parent: "pci0000:c0",
        id,
        numa: 0,
        group: None,
        driver: Some("amdgpu"),
    });
    tree.file(format!("{dir}/ras/umc_err_count"), "ue: 2\nce: 14\n");
    tree.dir("state");
    let written = tree.write();
    let answer = r#"{"card0": {"PCI Bus": "0000:C1:00.0", "Card Series": "MI300X", "VRAM Total Memory (B)": "206141652992", "Temperature (Sensor junction) (C)": "101.0"}, "system": {"Driver version": "6.7"}}"#;
    let programs =
        Programs { rocm_smi: Some(written.script("rocm-smi", &format!("echo '{answer}'"))), ..nowhere() };
    let gpu = gpu(&written, programs);
    assert_eq!(gpu.readings().unwrap()[0].ecc_uncorrected, Some(2));
    assert_eq!(
        codes(&gpu.findings().unwrap()),
        [("dcgm.thermal", "0000:c1:00.0"), ("dcgm.memory", "0000:c1:00.0")]
    );
}

#[test]
fn an_error_in_the_kernel_log_is_told_once_also_across_a_restart_and_anew_after_a_boot() {
    let mut tree = Tree::machine(1);
    tree.dir("state");
    tree.file(
        "dev/kmsg",
        "6,100,400500000,-;usb 1-1: new device\n SUBSYSTEM=usb\n\
         3,101,900500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n\
         garbage without a number\n",
    );
    let written = tree.write();
    let first = gpu(&written, nowhere());
    let findings = first.findings().unwrap();
    assert_eq!(codes(&findings), [("xid.79", "0000:1b:00.0")]);
    // 100 s before now, which is 1000.5 s after boot.
    assert_eq!(findings[0].observed_at, Utc.with_ymd_and_hms(2026, 3, 1, 11, 58, 20).unwrap());
    assert_eq!(first.findings().unwrap(), []);

    let restarted = gpu(&written, nowhere());
    assert_eq!(restarted.findings().unwrap(), []);
    let mut log = std::fs::read_to_string(written.path("dev/kmsg")).unwrap();
    log += "3,102,950500000,-;NVRM: Xid (PCI:0000:db:00): 48, DBE\n";
    std::fs::write(written.path("dev/kmsg"), &log).unwrap();
    assert_eq!(codes(&restarted.findings().unwrap()), [("xid.48", "0000:db:00.0")]);

    std::fs::write(written.path("proc/sys/kernel/random/boot_id"), "another\n").unwrap();
    std::fs::write(written.path("dev/kmsg"), "3,5,500,-;NVRM: Xid (PCI:0000:1b:00): 31, MMU\n").unwrap();
    assert_eq!(codes(&restarted.findings().unwrap()), [("xid.31", "0000:1b:00.0")]);
}

#[test]
fn a_storm_of_errors_is_told_in_portions_and_none_is_lost() {
    let mut tree = Tree::machine(1);
    tree.dir("state");
    let log: String = (0..150).map(|n| format!("3,{n},{n},-;NVRM: Xid (PCI:0000:1b:00): 13, n\n")).collect();
    tree.file("dev/kmsg", log);
    let written = tree.write();
    let gpu = gpu(&written, nowhere());
    let counts: Vec<_> = (0..4).map(|_| gpu.findings().unwrap().len()).collect();
    assert_eq!(counts, [64, 64, 22, 0]);
}
