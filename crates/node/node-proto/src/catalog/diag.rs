//! Typed checks and bounded collections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ProbeProfile {
    /// Before a node serves tenants for the first time.
    Onboarding,
    /// Between two tenants.
    BetweenTenants,
    /// At any time; must not disturb a tenant.
    Light,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthProbeInput {
    pub profile: ProbeProfile,
    /// How many GPUs the approved slots say there are.
    pub expected_gpus: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeCheck {
    /// `gpu_count`, `gpu_driver`, `disk_space`, `clock`, `memory`, …
    pub name: String,
    pub passed: bool,
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthReport {
    pub profile: ProbeProfile,
    pub passed: bool,
    pub checks: Vec<ProbeCheck>,
    pub gpus: Vec<GpuReading>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuReading {
    pub pci_address: String,
    pub model: String,
    pub driver: String,
    pub memory_mib: u64,
    pub temperature_celsius: Option<i32>,
    pub utilization_percent: Option<u32>,
    pub ecc_uncorrected: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum CollectPart {
    AgentLog,
    KernelLog,
    Mounts,
    Memory,
    GpuDriver,
    Processes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectInput {
    pub parts: Vec<CollectPart>,
}

/// Redacted on the node; each part is cut to a bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Collection {
    pub parts: Vec<CollectedPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectedPart {
    pub part: CollectPart,
    pub text: String,
    pub truncated: bool,
}

/// No part is longer than this.
pub const COLLECTED_PART_BYTES: usize = 64 * 1024;
