//! What an agent would say of a machine.

use node_proto::{
    catalog::{
        Blocker, CandidateSlot, GpuReading, HealthReport, KernelFacts, ProbeCheck, ProbeProfile, SlotKind,
        Topology,
    },
    contract::Ending,
};
use rcgen::{CertificateParams, KeyPair};

pub fn csr() -> String {
    let key = KeyPair::generate().unwrap();
    CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap()
}

pub fn succeeded<T: serde::Serialize>(output: &T) -> Ending {
    Ending::Succeeded { output: serde_json::to_value(output).unwrap() }
}

pub fn pci(n: usize) -> String {
    format!("0000:{:02x}:00.0", 0x10 + n)
}

pub fn candidate(n: usize) -> CandidateSlot {
    CandidateSlot {
        slot_index: u32::try_from(n).unwrap(),
        kind: SlotKind::Gpu,
        pci_address: Some(pci(n)),
        model: "H200".to_owned(),
        iommu_group: Some(u32::try_from(n).unwrap()),
        nvme_device: Some(format!("nvme-{n}")),
        numa_node: Some(0),
        fabric_vf: Some(format!("0000:a0:00.{n}")),
        blockers: Vec::new(),
    }
}

pub fn blocker() -> Blocker {
    Blocker {
        code: "iommu_group_shared".to_owned(),
        subject: "0000:1b:00.0".to_owned(),
        message: "Separate the group.".to_owned(),
    }
}

/// A machine with `gpus` GPUs, the last `blocked` of which cannot be sold.
pub fn topology(gpus: usize, blocked: usize) -> Topology {
    let mut candidates: Vec<CandidateSlot> = (0..gpus).map(candidate).collect();
    for candidate in candidates.iter_mut().rev().take(blocked) {
        candidate.blockers.push(blocker());
    }
    topology_of(candidates)
}

/// A machine with four GPUs to a NUMA node.
pub fn topology_in_numa_nodes(gpus: usize) -> Topology {
    let numa = |n| Some(u32::try_from(n / 4).unwrap());
    topology_of((0..gpus).map(|n| CandidateSlot { numa_node: numa(n), ..candidate(n) }).collect())
}

pub fn topology_of(candidates: Vec<CandidateSlot>) -> Topology {
    Topology {
        hostname: "gpu".to_owned(),
        kernel: KernelFacts { release: "6.8".to_owned(), iommu_enabled: true, arguments: Vec::new() },
        cpus: 96,
        memory_mib: 1_000_000,
        numa_nodes: Vec::new(),
        gpus: Vec::new(),
        block_devices: Vec::new(),
        nics: Vec::new(),
        candidates,
        blockers: Vec::new(),
    }
}

pub fn report(passed: bool) -> HealthReport {
    HealthReport {
        profile: ProbeProfile::Onboarding,
        passed,
        checks: vec![ProbeCheck {
            name: "gpu_count".to_owned(),
            passed,
            detail: "as expected or not".to_owned(),
        }],
        gpus: Vec::<GpuReading>::new(),
    }
}
