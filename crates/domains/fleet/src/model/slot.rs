//! A part of a node that can be sold by itself.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Problem,
    ids::{NodeId, SlotId},
};
use lifecycle::{Lifecycle as _, Named as _};
use node_proto::catalog;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::node::ReadinessBlocker;

lifecycle::lifecycle! {
    /// Only an approved, validated and healthy slot is ever available.
    SlotLifecycle = "slot", initial Discovered;
    states SlotState {
        Discovered = "discovered", Approved = "approved", Available = "available", Reserved = "reserved",
        InUse = "in_use", Cleaning = "cleaning", CleanupBlocked = "cleanup_blocked", Quarantined = "quarantined",
    }
    events SlotEvent {
        Approve = "approve", Withdraw = "withdraw", Validate = "validate", Reserve = "reserve", Free = "free",
        Occupy = "occupy", Clean = "clean", Cleaned = "cleaned", CleaningFailed = "cleaning_failed",
        Retry = "retry", ForceCleanup = "force_cleanup", Quarantine = "quarantine", Restore = "restore",
    }
    Discovered on Approve => Approved;
    Approved on Withdraw => Discovered;
    Available on Withdraw => Discovered;
    Approved on Validate => Available;
    Available on Reserve => Reserved;
    Reserved on Free => Available;
    Reserved on Occupy => InUse;
    InUse on Clean => Cleaning;
    Cleaning on Cleaned => Available;
    Cleaning on CleaningFailed => CleanupBlocked;
    CleanupBlocked on Retry => Cleaning;
    CleanupBlocked on ForceCleanup => Available;
    Approved on Quarantine => Quarantined;
    Available on Quarantine => Quarantined;
    Cleaning on Quarantine => Quarantined;
    CleanupBlocked on Quarantine => Quarantined;
    Quarantined on Restore => Approved;
}

impl SlotState {
    /// Somebody's work is, was or will be there: nothing about it may change under them.
    pub const fn is_occupied(self) -> bool {
        matches!(self, Self::Reserved | Self::InUse | Self::Cleaning | Self::CleanupBlocked)
    }
}

lifecycle::named_enum! {
    SlotKind = "kind of slot" { Gpu = "gpu", Cpu = "cpu" }
}

impl From<catalog::SlotKind> for SlotKind {
    fn from(found: catalog::SlotKind) -> Self {
        match found {
            catalog::SlotKind::Gpu => Self::Gpu,
            catalog::SlotKind::Cpu => Self::Cpu,
        }
    }
}

lifecycle::named_enum! {
    FabricMode = "fabric mode" {
        None = "none",
        /// A function of a fabric's device is the slot's.
        Vf = "vf",
    }
}

lifecycle::named_enum! {
    SlotHealth = "health of a slot" {
        Unknown = "unknown",
        Healthy = "healthy",
        Degraded = "degraded",
        Failed = "failed",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodeSlot")]
pub struct Slot {
    pub id: SlotId,
    pub node_id: NodeId,
    pub slot_index: i32,
    pub kind: SlotKind,
    pub state: SlotState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iommu_group: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvme_device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    pub fabric_mode: FabricMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric_vf: Option<String>,
    /// The NUMA node of the fabric's function; none while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub fabric_numa: Option<i32>,
    /// Why it could not be cleaned; it is not sold until it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cleanup_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    pub health: SlotHealth,
    pub blockers: Vec<ReadinessBlocker>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Slot {
    pub fn after(&self, event: SlotEvent) -> Result<SlotState, Problem> {
        SlotLifecycle::next(self.state, event).ok_or_else(|| {
            let text = format!("The slot is {}, which does not allow {}.", self.state, event.name());
            Problem::new(Code::InvalidTransition, text)
                .detail("slot_id", self.id.to_string())
                .detail("state", self.state.name())
        })
    }

    pub fn is_occupied(&self) -> bool {
        self.state.is_occupied()
    }
}

/// Blockers as they are stored.
pub fn stored_blockers(value: &Value) -> Vec<ReadinessBlocker> {
    let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let read = |item: &Value| ReadinessBlocker {
        code: text(item, "code"),
        subject: text(item, "subject"),
        message: text(item, "message"),
    };
    value.as_array().map(|items| items.iter().map(read).collect()).unwrap_or_default()
}

/// How many slots of a node are in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodeSlotCount")]
pub struct SlotCount {
    pub state: SlotState,
    pub count: i64,
}

/// Which slots an operator approves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Every slot that nothing stands in the way of.
    AllReady,
    Slots(Vec<SlotId>),
}

/// The slots to approve, or what stands in the way: of a named slot anything does, of all only that none is ready.
pub fn approvable<'a>(slots: &'a [Slot], approval: &Approval) -> Result<Vec<&'a Slot>, Problem> {
    let chosen: Vec<&Slot> = match approval {
        Approval::AllReady => slots
            .iter()
            .filter(|slot| slot.state == SlotState::Discovered && slot.blockers.is_empty())
            .collect(),
        Approval::Slots(ids) => {
            let find = |id: &SlotId| {
                slots.iter().find(|slot| slot.id == *id).ok_or_else(|| Problem::not_found("slot"))
            };
            ids.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    let blocked: Vec<Value> = chosen
        .iter()
        .filter(|slot| !slot.blockers.is_empty())
        .map(|slot| serde_json::json!({ "slot_id": slot.id, "slot_index": slot.slot_index, "blockers": slot.blockers }))
        .collect();
    if !blocked.is_empty() {
        let text = "Some of these slots have blockers and cannot be sold.";
        return Err(Problem::new(Code::Unprocessable, text)
            .detail("blocked", blocked)
            .suggest("Fix the blockers on the node, then discover it again."));
    }
    if chosen.is_empty() {
        let blockers: Vec<Value> = slots
            .iter()
            .flat_map(|slot| &slot.blockers)
            .map(|blocker| serde_json::json!({ "code": blocker.code, "subject": blocker.subject }))
            .collect();
        return Err(Problem::new(
            Code::Unprocessable,
            "No slot of this node waits for approval without blockers.",
        )
        .detail("blockers", blockers));
    }
    for slot in &chosen {
        slot.after(SlotEvent::Approve)?;
    }
    Ok(chosen)
}
