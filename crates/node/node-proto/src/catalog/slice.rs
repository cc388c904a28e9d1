//! Slices: virtual machines with GPUs of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One slot that a machine gets whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotDevices {
    pub slot_index: u32,
    /// The GPU; none for a slot of a machine without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme_device: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_vf: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmProvisionInput {
    /// Names the machine and its lease: `[a-z0-9_]{1,64}`, the allocation's id.
    pub owner: String,
    pub slots: Vec<SlotDevices>,
    pub vcpus: u32,
    pub memory_mib: u64,
    /// A name of the image catalog.
    pub image: String,
    /// The account in the guest.
    pub username: String,
    /// The complete desired set.
    pub authorized_keys: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionedVm {
    pub owner: String,
    /// Where the guest answers by SSH, as seen from outside the node.
    pub ssh_host: String,
    pub ssh_port: u16,
    /// Seen in the guest.
    pub gpus_visible: u32,
    /// False when the machine was there already, as asked.
    pub created: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmReleaseInput {
    pub owner: String,
    pub slots: Vec<SlotDevices>,
}

/// The evidence that nothing is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleasedVm {
    pub machine_removed: bool,
    pub disks_wiped: u32,
    pub devices_reset: u32,
    pub lease_removed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmRestartInput {
    pub owner: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestartedVm {
    pub gpus_visible: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmAuthorizedKeysInput {
    pub owner: String,
    pub username: String,
    /// The complete desired set. `slice.vm_retain_authorized_keys` keeps of the installed keys those in here, and adds
    /// none.
    pub authorized_keys: Vec<String>,
}
